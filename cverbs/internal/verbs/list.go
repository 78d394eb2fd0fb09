package verbs

import (
	"fmt"
	"os"
	"sync"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/machine"
)

// host is the devices that the environment variable ROCE_FLAGS describes.
var host = sync.OnceValues(machine.FromEnv)

// describe lists the devices that can be opened.
func describe() ([]machine.Info, error) {
	m, err := host()
	if err != nil {
		return nil, explain(err)
	}
	list, err := m.List()
	return list, explain(err)
}

// postTogether has the posts of a program that polls leave together. Most programs post one work request at a
// time and poll for completions when they have posted what they can.
func postTogether(c *roce.InterfaceConfig) { c.Lazy = true }

// openDevice opens a device of describe.
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

// explained are the errors that were printed.
var explained sync.Map

// explain prints an error on standard error, once, and returns it: a program sees no more of it than
// that there are no devices, or an errno.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if _, again := explained.LoadOrStore(err.Error(), true); !again {
		fmt.Fprintln(os.Stderr, "libroce-engine:", err)
	}
	return err
}

// Reports returns whether Exit has something to do: ROCE_FLAGS asks for counters.
func Reports() bool {
	m, err := host()
	return err == nil && m.Reports()
}

// Exit is called when the process ends. Programs need not close their devices: then it prints their
// counters. A device that another thread is opening or closing is left to that.
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
