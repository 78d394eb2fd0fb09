package scenario_test

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
)

// ailingPort is a port whose calls can be made to fail.
type ailingPort struct {
	link.Port
	waits, recvs       *atomic.Int64
	failWait, failRecv *atomic.Bool
}

func (p ailingPort) Wait(d time.Duration) error {
	p.waits.Add(1)
	if p.failWait.Load() {
		return link.Fail("ailing", "wait", "", nil, syscall.ENOMEM, "")
	}
	if p.failRecv.Load() {
		return nil // there is something to receive
	}
	return p.Port.Wait(d)
}

func (p ailingPort) Recv(fr []link.Frame) (int, error) {
	p.recvs.Add(1)
	if p.failRecv.Load() {
		return 0, link.Fail("ailing", "receive", "", nil, syscall.ENOSYS, "")
	}
	return p.Port.Recv(fr)
}

// ailing opens a device on a port that can be made to fail.
func (n *network) ailing(addr string, polled bool) (*roce.Device, ailingPort) {
	n.t.Helper()
	c := n.config(addr)
	c.Polled = polled
	p := ailingPort{c.Ports[0], new(atomic.Int64), new(atomic.Int64), new(atomic.Bool), new(atomic.Bool)}
	c.Ports[0] = p
	d := n.open(c)
	if polled {
		keepBusy(n.t, d)
	}
	return d, p
}

// TestWaitFails: if the Wait of a port fails, the device polls the port from time to time. So it works, and keeps no core
// busy.
func TestWaitFails(t *testing.T) {
	for _, polled := range []bool{false, true} {
		for _, always := range []bool{false, true} {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				d, port := n.ailing("10.0.0.1", polled)
				a, b := newPeer(t, n.device("10.0.0.2"), 100), newPeer(t, d, 100)
				connect(t, a, b)
				port.failWait.Store(true)
				port.Wake()
				time.Sleep(10 * time.Second)
				if calls := port.waits.Load(); calls > 50_000 {
					t.Errorf("polled=%v: %d waits in ten seconds: a spin", polled, calls)
				}
				port.failWait.Store(always)
				a.post(roce.Write, 0, 100, b, 0)
				a.wait()
				c := d.Counters()
				if c.PortErrors == 0 {
					t.Errorf("polled=%v: nothing is counted", polled)
				}
				wantEvents(t, d)
			})
		}
	}
}

// TestRecvFails: a port that cannot receive is down, and up again when it can.
func TestRecvFails(t *testing.T) {
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			d, port := n.ailing("10.0.0.1", polled)
			a, b := newPeer(t, n.device("10.0.0.2"), 100), newPeer(t, d, 100)
			connect(t, a, b)

			// A short failure has no effect.
			port.failRecv.Store(true)
			port.Wake()
			time.Sleep(100 * time.Millisecond)
			port.failRecv.Store(false)
			a.post(roce.Write, 0, 100, b, 0)
			a.wait()
			wantEvents(t, d)
			if c := d.Counters(); c.PortErrors == 0 {
				t.Errorf("polled=%v: nothing is counted", polled)
			}

			before := port.recvs.Load()
			port.failRecv.Store(true)
			port.Wake()
			time.Sleep(10 * time.Second)
			if calls := port.recvs.Load() - before; calls > 50_000 && !polled {
				t.Errorf("%d receives in ten seconds: a spin", calls)
			}
			if p := ok(d.QueryPort(1))(t); p.State != roce.PortDown {
				t.Errorf("polled=%v: a port that receives nothing is %v", polled, p.State)
			}
			port.failRecv.Store(false)
			a.post(roce.Write, 0, 100, b, 0)
			a.wait()
			if p := ok(d.QueryPort(1))(t); p.State != roce.PortActive {
				t.Errorf("polled=%v: a port that works again is %v", polled, p.State)
			}
			wantEvents(t, d, roce.Event{Type: roce.EventPortErr, Port: 1}, roce.Event{Type: roce.EventPortActive, Port: 1})
		})
	}
}

// TestCloseSpinning: a device that never sleeps is closed at once, too.
func TestCloseSpinning(t *testing.T) {
	n := newNetwork(t)
	c := n.config("10.0.0.1")
	c.Spin = time.Hour
	d := n.open(c)
	time.Sleep(time.Millisecond) // the background goroutine looks for packets
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	select {
	case err := <-closed:
		check(t, err)
	case <-time.After(time.Minute):
		t.Fatal("Close waits for the end of Config.Spin")
	}
}
