//go:build linux

package sharing

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/interop/child"
)

// groupQP is a queue pair of a member for datagrams to groups.
type groupQP struct {
	qp   *roce.QP
	mu   sync.Mutex
	got  []string
	room *roce.MR
}

const (
	groupQKey = 0x11111111
	datagram  = roce.GRHLen + 64
	datagrams = 64
)

// Attach makes a member join a group. With the zero address it joins none, and only sends.
func (m *Member) Attach(group netip.Addr, r *Failure) error {
	*r = failure(m.attach(group))
	return nil
}

func (m *Member) attach(group netip.Addr) error {
	if m.group == nil {
		pd := m.dev.AllocPD()
		queue, err := m.dev.CreateCQ(2 * datagrams)
		if err != nil {
			return err
		}
		g := &groupQP{}
		if g.qp, err = pd.CreateQP(roce.QPConfig{Type: roce.UD, SendCQ: queue}); err != nil {
			return err
		}
		if g.room, err = pd.RegMR(make([]byte, datagram*datagrams), roce.LocalWrite); err != nil {
			return err
		}
		if err := g.qp.Init(0, groupQKey); err != nil {
			return err
		}
		for i := range datagrams {
			if err := g.qp.PostRecv(&roce.RecvWR{ID: uint64(i), SG: []roce.SGE{g.room.SGE(i*datagram, datagram)}}); err != nil {
				return err
			}
		}
		if err := g.qp.Ready(0); err != nil {
			return err
		}
		m.group = g
		go g.collect()
	}
	if group.IsUnspecified() {
		return nil
	}
	return m.group.qp.AttachMulticast(bth.GIDFrom(group))
}

// collect records the received datagrams.
func (g *groupQP) collect() {
	for {
		wc, err := g.qp.RecvCQ().Next(context.Background())
		if err != nil || wc.Status != roce.StatusSuccess {
			return
		}
		if wc.Opcode != roce.WCRecv {
			continue
		}
		at := int(wc.ID) * datagram
		g.mu.Lock()
		g.got = append(g.got, string(g.room.Bytes()[at+roce.GRHLen:at+int(wc.ByteLen)]))
		g.mu.Unlock()
	}
}

// Cast is a datagram to a group.
type Cast struct {
	Group netip.Addr
	Text  string
}

// Cast sends a datagram to a group.
func (m *Member) Cast(c Cast, r *Failure) error {
	from := slices.IndexFunc(m.dev.GIDs(), func(g bth.GID) bool { return g.Is4() == c.Group.Is4() && !g.IsLinkLocal() })
	ah, err := m.dev.CreateAH(context.Background(), roce.AHAttr{DGID: bth.GIDFrom(c.Group), SGIDIndex: from})
	if err == nil {
		err = m.group.qp.PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, Inline: []byte(c.Text), AH: ah, RemoteQPN: roce.QPNMulticast, RemoteQKey: groupQKey})
	}
	*r = failure(err)
	return nil
}

// Heard returns the datagrams received so far.
func (m *Member) Heard(_ child.None, r *[]string) error {
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	*r = slices.Clone(m.group.got)
	return nil
}

// A datagram to a group reaches each process that has joined the group exactly once: processes on
// the host of the sender, with one queue and with several, and processes on another host.
func TestGroups(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{"udp", "raw"} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			s := interfaces(t, driver)
			a, b := s[0], s[1]
			var all []*process
			for _, at := range []side{a, a, b, b} {
				all = append(all, at.member(t))
			}
			two := func(o *Open) { o.Queues = 2 }
			all = append(all, a.member(t, two), b.member(t, two))
			cast(t, all, a.member(t))
		})
		t.Run(driver+" alone", func(t *testing.T) {
			t.Parallel()
			s := interfaces(t, driver)
			two := func(o *Open) { o.Queues, o.Exclusive = 2, true }
			cast(t, []*process{s[0].member(t, two), s[1].member(t, two)})
		})
	}
}

// cast makes processes join groups, makes them and the deaf processes, which join none, send to the
// groups, and checks the received datagrams.
func cast(t *testing.T, all []*process, deaf ...*process) {
	t.Helper()
	members := func(group netip.Addr) {
		for _, p := range slices.Concat(all, deaf) {
			var f Failure
			g := group
			if slices.Contains(deaf, p) {
				g = netip.IPv4Unspecified()
			}
			if p.call("Attach", g, &f); f.Text != "" {
				t.Fatalf("process %d joins %v: %s", p.pid, g, f.Text)
			}
		}
	}
	var want []string
	for _, group := range []string{"239.1.2.3", "ff0e::7"} {
		g := netip.MustParseAddr(group)
		members(g)
		for _, p := range slices.Concat(all, deaf) {
			text := fmt.Sprintf("process %d to %v", p.pid, g)
			var f Failure
			if p.call("Cast", Cast{g, text}, &f); f.Text != "" {
				t.Fatal(f.Text)
			}
			want = append(want, text)
		}
	}
	slices.Sort(want)
	heard := func(p *process) (got []string) {
		p.call("Heard", nil, &got)
		slices.Sort(got)
		return got
	}
	for _, p := range all {
		eventually(t, func() string {
			got := heard(p)
			missed := slices.DeleteFunc(slices.Clone(want), func(text string) bool { return slices.Contains(got, text) })
			if len(missed) > 0 {
				return fmt.Sprintf("process %d has not received %q", p.pid, missed)
			}
			return ""
		})
	}
	time.Sleep(100 * time.Millisecond) // a second copy would arrive in this time
	for i, p := range all {
		if got := heard(p); !slices.Equal(got, want) {
			t.Errorf("process %d, %d of %d: received\n\t%q, want\n\t%q", p.pid, i, len(all), got, want)
		}
	}
	for _, p := range deaf {
		if got := heard(p); len(got) > 0 {
			t.Errorf("a process that has joined no group received %q", got)
		}
	}
}
