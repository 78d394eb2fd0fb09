package verbs

import (
	"fmt"
	"os"
	"sync"

	"github.com/goroce/roce/internal/machine"
)

// host is the devices that the environment variable ROCE_FLAGS describes. If that makes no sense it says
// so on standard error, once: a program sees no more than that there are no devices.
var host = sync.OnceValues(func() (*machine.Machine, error) {
	m, err := machine.FromEnv()
	if err != nil {
		fmt.Fprintln(os.Stderr, "libroce-engine:", err)
	}
	return m, err
})

// describe lists the devices that can be opened.
func describe() ([]machine.Info, error) {
	m, err := host()
	if err != nil {
		return nil, err
	}
	return m.List()
}

// openDevice opens a device of describe.
func openDevice(name string) (*machine.Device, error) {
	m, err := host()
	if err != nil {
		return nil, err
	}
	return m.Open(name, nil)
}
