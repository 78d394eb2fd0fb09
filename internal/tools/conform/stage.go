package conform

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/pcap"
	"github.com/goroce/roce/verify"
)

// Open opens the tester's device. It calls wrap with each port of the driver, and uses the returned ports. With notify the device answers
// congestion marks with CNPs. Without notify it may do so or not.
type Open func(wrap func(link.Port) (link.Port, error), notify bool) (Device, error)

// Device is the tester's device. Its Close also closes what Open has opened besides the device.
type Device struct {
	*roce.Device
	Close func() error
}

// stage has the resources of a step: the tester's device with the tap and the faults, and the known connections.
type stage struct {
	dev    Device
	rec    *recorder
	faults []*fault.Port // one for each queue of the interface
	conns  []verify.Connection
	driver string
}

// newStage opens the device.
func newStage(open Open, faults fault.Config, notify bool) (*stage, error) {
	s := &stage{rec: newRecorder()}
	var err error
	s.dev, err = open(func(p link.Port) (link.Port, error) {
		s.driver = p.Info().Driver
		p, err := pcap.Wrap(p, nil, pcap.Options{Seen: s.rec.seen})
		if err != nil {
			return nil, err
		}
		f, err := fault.Wrap(p, faults)
		s.faults = append(s.faults, f)
		return f, err
	}, notify)
	return s, err
}

// fired returns how many faults were injected by rules.
func (s *stage) fired() (n uint64) {
	for _, f := range s.faults {
		tx, rx := f.Counters()
		n += tx.Rules + rx.Rules
	}
	return n
}

// lost reports whether the interface of the device was removed.
func (s *stage) lost() bool {
	for {
		e, ok := s.dev.TryNextEvent()
		if !ok {
			return false
		}
		if e.Type == roce.EventDeviceFatal {
			return true
		}
	}
}

// connected adds a connection that the two ends have made out of band, with its parameters.
func (s *stage) connected(near, distant address, t terms) error {
	c := verify.Connection{MTU: t.MTU}
	for i, a := range []address{near, distant} {
		gid, err := a.gid()
		if err != nil {
			return err
		}
		c.Ends[i] = verify.ConnectionEnd{Addr: gid.Addr(), QPN: bth.QPN(a.QPN), PSN: bth.PSN(a.PSN), Timeout: t.Timeout, Retries: int(t.Retries), Depth: int(t.Reads)}
	}
	s.conns = append(s.conns, c)
	return nil
}

// save writes the packets of a step to a file in a folder, and returns the name of the file.
func save(folder, step string, records []pcap.Record) (name string, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	name = strings.ReplaceAll(step, "/", "-") + ".pcapng"
	w, err := pcap.Create(filepath.Join(folder, name), 0)
	if err != nil {
		return "", err
	}
	lt := pcap.Ethernet
	if len(records) > 0 {
		lt = records[0].LinkType
	}
	if _, err := w.AddInterface(pcap.Interface{Name: "conform", LinkType: lt}); err != nil {
		return "", errors.Join(err, w.Close())
	}
	for i := range records {
		r := records[i]
		r.Interface = 0
		w.Write(&r)
	}
	if err := w.Close(); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return name, nil
}
