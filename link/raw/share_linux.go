package raw

import (
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/claim"
	"github.com/goroce/roce/internal/share"
)

// medium implements [share.Medium]. The kernel delivers every packet to the sockets of
// all processes, and each filter accepts the packets for its process, so there is
// nothing to steer.
type medium struct {
	port  *Port       // of the process that opens the address
	taken *errs.Error // why the address could not be opened
}

// Sockets implements [share.Medium]: each process has its own sockets.
func (m *medium) Sockets() int { return 0 }

// Hear implements [share.Medium].
func (m *medium) Hear() bool { return true }

// Open implements [share.Medium]. It claims the UDP port.
func (m *medium) Open() (files []int, notes []string, err error) {
	c, notes, err := claim.Take(m.port.cfg.claim())
	if err != nil {
		m.taken = m.port.FailStep(claiming, err)
		return nil, nil, m.taken
	}
	return c.Hand(), notes, nil
}

// Steer implements [share.Medium].
func (m *medium) Steer([]int, []share.Service, share.Slot) error { return nil }

// Silence implements [share.Medium].
func (m *medium) Silence([]int) {}

// enter takes slots for the device with first queue p, on an interface that processes share.
func (p *Port) enter() (err error) {
	m := &medium{port: p}
	p.place, err = share.Join(share.Config{Key: share.InterfaceKey("raw", p.Desc.Index), Slots: p.cfg.queues, Medium: m})
	if m.taken != nil {
		share.NameRival(m.taken, "raw", p.Desc.Index)
	}
	if err != nil {
		return err
	}
	p.slots = p.place.Slots()
	p.Desc.Notes = append(p.Desc.Notes, p.place.Notes()...)
	return nil
}

// Shared implements [share.Sharer].
func (p *Port) Shared() share.Shared { return p.place.Shared() }

// Owner implements [share.Owned].
func (p *Port) Owner() share.Teller { return p.owner.Teller() }

// claim returns the configuration for claiming the UDP port.
func (c *Config) claim() claim.Config {
	return claim.Config{Interface: c.Interface, Share: c.SharePort, Super: release() >= superRelease}
}

// claiming is the name of the step of Open that claims the UDP port, for errors.
const claiming = "UDP port"
