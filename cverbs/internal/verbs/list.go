package verbs

import (
	"fmt"
	"os"
	"sync"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/machine"
)

// host returns the devices that the environment variable ROCE_FLAGS describes.
var host = sync.OnceValues(machine.FromEnv)

// describe lists the available devices.
func describe() ([]machine.Info, error) {
	m, err := host()
	if err != nil {
		return nil, explain(err)
	}
	list, err := m.List()
	return list, explain(err)
}

// postTogether defers the posts of a polling program, so that they are sent together. Most programs post one
// work request at a time, and poll for completions after they have posted all that they can.
func postTogether(c *roce.InterfaceConfig) { c.Lazy, c.Collect = true, HandOver }

// openDevice opens a device of the list of describe.
func openDevice(name string) (*machine.Device, error) {
	m, err := host()
	if err != nil {
		return nil, explain(err)
	}
	d, err := m.Open(name, postTogether)
	if err != nil {
		return nil, explain(fmt.Errorf("%s: %w", name, err))
	}
	return d, nil
}

// explained are the printed errors.
var explained sync.Map

// explain prints an error on standard error, once, and returns it. The program sees only an errno, or an empty
// list of devices.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if _, again := explained.LoadOrStore(err.Error(), true); !again {
		fmt.Fprintln(os.Stderr, "libroce-engine:", err)
	}
	return err
}

// Reports reports whether ROCE_FLAGS requests counters, so that Exit has something to do.
func Reports() bool {
	m, err := host()
	return err == nil && m.Reports()
}

// Exit is called when the process ends. It prints the counters of devices that the program has not closed. It
// skips a device that another thread is opening or closing.
func Exit() {
	known.Lock()
	defer known.Unlock()
	for _, d := range known.devices {
		if !d.life.TryLock() {
			continue
		}
		if d.dev != nil {
			d.dev.Report()
		}
		d.life.Unlock()
	}
}
