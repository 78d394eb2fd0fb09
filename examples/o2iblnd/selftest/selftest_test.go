package selftest_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/o2iblnd/node"
	"github.com/goroce/roce/examples/o2iblnd/selftest"
	"github.com/goroce/roce/examples/o2iblnd/wire"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

func open(t *testing.T, hub *mem.Hub, host byte) *node.Node {
	t.Helper()
	ip := netip.AddrFrom4([4]byte{10, 0, 0, host})
	port, err := hub.Port(fmt.Sprint(host), roce.DerivedMAC(ip))
	check(t, err)
	dev, err := roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{ip}})
	check(t, err)
	n, err := node.Open(dev, node.Config{Addr: ip})
	check(t, err)
	t.Cleanup(func() { n.Close(); dev.Close() })
	return n
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestBRW reads and writes data of sizes around the limit of an IMMEDIATE and up to the largest request.
func TestBRW(t *testing.T) {
	hub := mem.NewHub(mem.Config{MTU: 4200})
	server, client := open(t, hub, 1), open(t, hub, 2)
	s := selftest.Serve(server, 1)
	defer s.Close()
	c := selftest.NewClient(client, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	for _, size := range []int{8, 3072, 3976, 4096, 16384, 1 << 20} {
		for _, d := range []selftest.Direction{selftest.Read, selftest.Write} {
			if err := c.BRW(ctx, server.NID(), d, size, selftest.CheckFull); err != nil {
				t.Errorf("%v of %d bytes: %v", d, size, err)
			}
		}
	}
	check(t, c.Ping(ctx, server.NID(), 7))
	if err := c.BRW(ctx, server.NID(), selftest.Read, 1<<20+1, selftest.CheckFull); err == nil {
		t.Error("a request of more than 1 MiB was served")
	}
}

// console replaces `lst`: it sends the requests that Lustre's console sends.
type console struct {
	t    *testing.T
	node *node.Node
	next uint64
}

// field is a number in the body of a request, with its size in bytes.
type field struct {
	size  int
	value uint64
}

// ask sends a request and returns the body of the reply.
func (c *console) ask(to wire.NID, service uint64, typ selftest.Type, fields ...field) []byte {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	c.next++
	reply, done := make([]byte, selftest.MessageLen), make(chan error, 1)
	target := &node.Target{Portal: selftest.DataPortal, MatchBits: c.next,
		Put: func(*wire.LNetHeader) []byte { return reply }, Done: func(_ *wire.LNetHeader, _ int, err error) { done <- err }}
	c.node.Attach(target)
	defer c.node.Detach(target)
	m := selftest.New(typ, selftest.FeatureBulkLen)
	body := binary.LittleEndian.AppendUint64(nil, c.next)
	for _, f := range fields {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], f.value)
		body = append(body, b[:f.size]...)
	}
	copy(m.Body, body)
	_, err := c.node.Put(ctx, to, selftest.FrameworkPortal, service, m.Encode(), false)
	check(c.t, err)
	select {
	case err := <-done:
		check(c.t, err)
	case <-ctx.Done():
		c.t.Fatal("no reply")
	}
	r, err := selftest.Decode(reply)
	check(c.t, err)
	if r.Type != typ+1 {
		c.t.Fatalf("request %d was answered with message %d", typ, r.Type)
	}
	return r.Body
}

func status(body []byte) uint32 { return binary.LittleEndian.Uint32(body) }

// TestSession has a console run a brw test between two nodes of a group.
func TestSession(t *testing.T) {
	hub := mem.NewHub(mem.Config{MTU: 4200})
	server, client := open(t, hub, 1), open(t, hub, 2)
	for i, n := range []*node.Node{server, client} {
		s := selftest.Serve(n, uint64(i+10))
		defer s.Close()
	}
	c := &console{t: t, node: open(t, hub, 3)}
	session := []field{{8, uint64(c.node.NID())}, {8, 12345}}
	request := func(fields ...field) []field { return append(session[:2:2], fields...) }
	for _, n := range []*node.Node{server, client} {
		if got := c.ask(n.NID(), 1, selftest.MakeSession, request(field{4, 1})...); status(got) != 0 || binary.LittleEndian.Uint32(got[20:]) != 100 {
			t.Fatalf("make session: %x", got)
		}
	}
	if got := c.ask(server.NID(), 1, selftest.MakeSession, field{8, 1}, field{8, 2}); status(got) == 0 {
		t.Error("a second session without force was made")
	}
	servers := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, uint64(server.NID())), wire.KernelPID)
	list := &node.Target{Portal: selftest.DataPortal, MatchBits: 1 << 40, Get: func(*wire.LNetHeader) []byte { return servers }}
	c.node.Attach(list)
	const loops = 20
	test := func(batch, concurrency, isClient, dests uint64) []field {
		return append([]field{{8, 1 << 40}}, request(field{8, batch}, field{4, 11}, field{4, loops}, field{4, concurrency}, field{1, isClient}, field{1, 1}, field{4, dests},
			field{2, uint64(selftest.Write)}, field{2, uint64(selftest.CheckFull)}, field{4, 65536}, field{4, 0})...)
	}
	if got := c.ask(server.NID(), 4, selftest.Test, test(5, 2, 0, 0)...); status(got) != 0 {
		t.Fatalf("add test at the server: status %d", status(got))
	}
	if got := c.ask(client.NID(), 4, selftest.Test, test(5, 2, 1, 1)...); status(got) != 0 {
		t.Fatalf("add test at the client: status %d", status(got))
	}
	if got := c.ask(client.NID(), 3, selftest.Batch, request(field{8, 5}, field{4, 1})...); status(got) != 0 {
		t.Fatalf("run: status %d", status(got))
	}
	for active := uint32(1); active != 0; {
		got := c.ask(client.NID(), 3, selftest.Batch, request(field{8, 5}, field{4, 3})...)
		if status(got) != 0 {
			t.Fatalf("query: status %d", status(got))
		}
		active = binary.LittleEndian.Uint32(got[20:])
	}
	got := c.ask(server.NID(), 5, selftest.Stat, session...)
	if errors, bytes := binary.LittleEndian.Uint32(got[32:]), binary.LittleEndian.Uint64(got[60:]); errors != 0 || bytes != 2*loops*65536 {
		t.Errorf("the server counts %d errors and %d bytes, want 0 and %d", errors, bytes, 2*loops*65536)
	}
	for range 5 { // tests of 8960 units, which would have as many buffers
		if got := c.ask(client.NID(), 4, selftest.Test, test(6, 1792, 1, 1)...); status(got) != 0 {
			t.Fatalf("add a large test: status %d", status(got))
		}
	}
	if got := c.ask(client.NID(), 3, selftest.Batch, request(field{8, 6}, field{4, 1})...); status(got) != 12 {
		t.Errorf("run of too many units: status %d, want ENOMEM", status(got))
	}
	if got := c.ask(client.NID(), 2, selftest.RemoveSession, session...); status(got) != 0 {
		t.Errorf("remove session: status %d", status(got))
	}
}
