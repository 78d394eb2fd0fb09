package scenario_test

import (
	"context"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/qp"
)

// losing makes a configuration lose the first packet of an operation that it sends.
func losing(t testing.TB, c roce.Config, op bth.Opcode) roce.Config {
	t.Helper()
	c.Ports[0] = ok(fault.Wrap(c.Ports[0], fault.Config{Rules: []fault.Rule{{Action: fault.Drop, Dir: fault.Tx, Op: fault.Is(op), Nth: 1}}}))(t)
	return c
}

// transferred connects two devices that repair losses, and transfers a message, which b has received.
func transferred(t *testing.T, n *network, ca, cb roce.Config, size int) (a, b *peer) {
	ca.Recovery, cb.Recovery = roce.RecoverAll, roce.RecoverAll
	a, b = newPeer(t, n.open(ca), size), newPeer(t, n.open(cb), size)
	connect(t, a, b)
	b.recv(0, size)
	a.post(roce.Send, 0, size, nil, 0)
	b.wait()
	return a, b
}

// TestEndingAfterLoss: a packet of a message was lost, and the program that receives the message ends its queue pair at
// once. The message is a success for its sender, however the queue pair ends.
func TestEndingAfterLoss(t *testing.T) {
	const size = 4 * 4096
	for name, end := range map[string]func(*peer) error{
		"destroyed": func(p *peer) error { return p.qp.Close() },
		"reset":     func(p *peer) error { return p.qp.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState) },
		"error":     func(p *peer) error { return p.qp.Modify(&roce.Attr{State: qp.Err}, qp.AttrState) },
		"closed":    func(p *peer) error { return p.dev.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				ca, cb := losing(t, n.config("10.0.0.1"), bth.RCSendMiddle), n.config("10.0.0.2")
				a, b := transferred(t, n, ca, cb, size)
				check(t, end(b))
				a.wait()
				if held := b.dev.Counters().HeldRequests; held == 0 {
					t.Error("nothing was held")
				}
			})
		})
	}
	for name, end := range map[string]func(context.Context, *roce.Conn, *roce.Device) error{
		"disconnected":      func(ctx context.Context, c *roce.Conn, _ *roce.Device) error { return c.Disconnect(ctx) },
		"connection closed": func(_ context.Context, c *roce.Conn, _ *roce.Device) error { return c.Close() },
		"device closed":     func(_ context.Context, _ *roce.Conn, d *roce.Device) error { return d.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				ca, cb := losing(t, n.config("10.0.0.2"), bth.RCSendMiddle), n.config("10.0.0.1")
				ca.Recovery, cb.Recovery = roce.RecoverAll, roce.RecoverAll
				c := &couple{t: t, net: n, server: n.open(cb), client: n.open(ca)}
				c.listener = ok(c.server.Listen(t.Context(), ":7471", roce.ListenConfig{}))(t)
				server, client := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
				from, to := ok(client.RegMR(make([]byte, size), 0))(t), ok(server.RegMR(make([]byte, size), roce.LocalWrite))(t)
				check(t, server.QP().PostRecv(&roce.RecvWR{SG: []roce.SGE{to.SGE(0, size)}}))
				check(t, client.QP().PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{from.SGE(0, size)}}))
				if wc := ok(server.QP().RecvCQ().Next(t.Context()))(t); wc.Err() != nil {
					t.Fatal(wc.Err())
				}
				check(t, end(t.Context(), server, c.server))
				if wc := ok(client.QP().SendCQ().Next(t.Context()))(t); wc.Err() != nil {
					t.Error(wc.Err())
				}
			})
		})
	}
}

// TestEndingPeerAgain: a queue pair has ended and repeats its last acknowledgement. Its peer is meanwhile connected with
// another queue pair of the device, with the same PSNs, and all that it sends is lost. The repetitions do not reach it: it
// would take them for acknowledgements of what it has sent.
func TestEndingPeerAgain(t *testing.T) {
	const size = 4 * 4096
	for name, end := range map[string]func(*peer) error{
		"destroyed": func(p *peer) error { return p.qp.Close() },
		"error":     func(p *peer) error { return p.qp.Modify(&roce.Attr{State: qp.Err}, qp.AttrState) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				ca, cb := n.config("10.0.0.1"), n.config("10.0.0.2")
				ca.Ports[0] = ok(fault.Wrap(ca.Ports[0], fault.Config{Rules: []fault.Rule{
					{Action: fault.Drop, Dir: fault.Tx, Op: fault.Is(bth.RCSendMiddle), Nth: 1},
					{Action: fault.Drop, Dir: fault.Tx, Op: fault.Is(bth.RCSendOnly)},
				}}))(t)
				a, b := transferred(t, n, ca, cb, size)
				check(t, end(b))
				a.wait()
				check(t, a.qp.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState))
				check(t, a.qp.Init(roce.DefaultQPAccess, 0))
				again := newPeer(t, b.dev, size)
				again.psn = b.psn
				connect(t, a, again)
				for range 4 {
					a.post(roce.Send, 0, 8, nil, 0)
				}
				a.waitFor(cq.RetryExcErr)
			})
		})
	}
}
