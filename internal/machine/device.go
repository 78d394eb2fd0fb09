package machine

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/hubdev"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/link/pcap"
	"github.com/goroce/roce/xdp"
)

// Device is a NIC together with the capture of its packets.
type Device struct {
	*roce.Device
	capture  *pcap.Writer // nil: none
	trace    *trace       // nil: none
	counters io.Writer    // output of the counters; nil: none
	once     sync.Once    // prints the counters
}

// Close stops the NIC and finishes the capture.
func (d *Device) Close() error {
	d.Report()
	return errors.Join(d.Device.Close(), d.closeTaps())
}

// Report prints the counters that the flags request, once: when the NIC is closed, or when the program ends without
// closing it.
func (d *Device) Report() {
	if d.counters != nil {
		d.once.Do(func() { printCounters(d.counters, d.Counters()) })
	}
}

// closeTaps finishes the capture and the trace.
func (d *Device) closeTaps() (err error) {
	if d.capture != nil {
		err = d.capture.Close()
	}
	if d.trace != nil {
		err = errors.Join(err, d.trace.close())
	}
	return err
}

// Open opens the NIC on the interface of --dev, or else on the one that has the address near or leads to far. Traces,
// counters and notes go to log.
func (f *Flags) Open(near, far netip.Addr, log io.Writer) (*Device, error) {
	if a := f.socketAddr(near, far); a.IsValid() {
		return f.openAddr(a, f.config(), log)
	}
	name := f.Dev
	if name == "" {
		var err error
		if name, err = findInterface(near, far); err != nil {
			return nil, err
		}
	}
	return f.openInterface(name, f.config(), log)
}

func (f *Flags) openAddr(a netip.Addr, c roce.InterfaceConfig, log io.Writer) (*Device, error) {
	d := f.device(log)
	c.Wrap = f.wrap(d, log)
	var err error
	d.Device, err = roce.OpenAddr(a, c)
	return d.opened(err)
}

func (f *Flags) openInterface(name string, c roce.InterfaceConfig, log io.Writer) (*Device, error) {
	if err := Exists(name); err != nil {
		return nil, err
	}
	d := f.device(log)
	c.Wrap = f.wrap(d, log)
	var err error
	d.Device, err = roce.OpenInterface(name, c)
	if err == nil && (f.InPlace > 0 || f.ZeroCopy == xdp.ZeroCopyOn.String()) { // the notes say why it is not possible
		for _, n := range d.Query().Link.Notes {
			fmt.Fprintf(log, "%s: %s\n", name, n)
		}
	}
	return d.opened(err)
}

// OpenPair opens two NICs on a wire in this process. The flags apply to the first one.
func (f *Flags) OpenPair(a, b netip.Addr, log io.Writer) (near, far *Device, err error) {
	hub := mem.NewHub(mem.Config{})
	far = new(Device)
	own := f.options()
	if far.Device, err = hubdev.Open(hub, b, roce.Config{Options: roce.Options{Congestion: own.Congestion, Recovery: own.Recovery}}, nil); err != nil {
		return nil, nil, adviseSpeed(err)
	}
	near = f.device(log)
	near.Device, err = hubdev.Open(hub, a, roce.Config{Options: own}, f.wrap(near, log))
	if near, err = near.opened(err); err != nil {
		far.Close()
		return nil, nil, err
	}
	return near, far, nil
}

func (f *Flags) device(log io.Writer) *Device {
	d := new(Device)
	if f.Counters {
		d.counters = log
	}
	return d
}

// opened returns d. If err is not nil, it closes the taps and returns err.
func (d *Device) opened(err error) (*Device, error) {
	if err == nil {
		return d, nil
	}
	d.closeTaps()
	return nil, adviseSpeed(err)
}

// adviseSpeed adds the flag for the field LineRate to err, if err says that the field is missing.
func adviseSpeed(err error) error {
	if strings.Contains(err.Error(), "LineRate") {
		return fmt.Errorf("%w: give the speed of the line, --dcqcn=25 for 25 Gb/s", err)
	}
	return err
}

// wrap returns a function that wraps a port in the capture and the trace, and these in the faults. d closes the capture
// and the trace.
func (f *Flags) wrap(d *Device, log io.Writer) func(link.Port) (link.Port, error) {
	return func(p link.Port) (_ link.Port, err error) {
		if f.Wrap != nil {
			if p, err = f.Wrap(p); err != nil {
				return nil, err
			}
		}
		if f.Capture != "" {
			// A program that has the flags in its environment may end without closing the device.
			if d.capture == nil { // one file for all queues
				if d.capture, err = f.createCapture(log); err != nil {
					return nil, err
				}
			}
			if p, err = pcap.Wrap(p, d.capture, pcap.Options{Live: f.own || f.Capture == "-"}); err != nil {
				return nil, err
			}
		}
		if f.Trace {
			if d.trace == nil {
				d.trace = newTrace(log)
			}
			if p, err = pcap.Wrap(p, d.trace.tap, pcap.Options{Live: true}); err != nil {
				return nil, err
			}
		}
		if f.Faults.Enabled() {
			return fault.Wrap(p, f.Faults)
		}
		return p, nil
	}
}

// createCapture makes the file of --capture. If many programs have the same flags, each gets a new file.
func (f *Flags) createCapture(log io.Writer) (*pcap.Writer, error) {
	name := f.Capture
	if f.own {
		file, err := createOwn(name, os.Getpid())
		if err != nil {
			return nil, err
		}
		file.Close() // the file is empty, and this program has made it
		if want := expandPID(name, os.Getpid()); file.Name() != want {
			fmt.Fprintf(log, "roce: %s exists, the capture goes to %s\n", want, file.Name())
		}
		name = file.Name()
	}
	return pcap.Create(name, 0)
}
