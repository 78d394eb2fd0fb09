package rdmacm_test

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/rdmacm"
)

func must[T any](v T, err error) T {
	no(err)
	return v
}

func no(err error) {
	if err != nil {
		panic(err)
	}
}

// twoHosts are machines with a device each, on one wire.
func twoHosts() (server, client *rdmacm.Host, done func()) {
	hub := mem.NewHub(mem.Config{MTU: 4200})
	open := func(addr string) *roce.Device {
		ip := netip.MustParseAddr(addr)
		port := must(hub.Port(addr, roce.DerivedMAC(ip)))
		return must(roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{ip}}))
	}
	a, b := open("10.0.0.1"), open("10.0.0.2")
	return must(rdmacm.NewHost(a)), must(rdmacm.NewHost(b)), func() { a.Close(); b.Close() }
}

// Both ends use event channels: the calls return at once, and events report the outcome.
func Example() {
	ctx := context.Background()
	server, client, done := twoHosts()
	defer done()
	config := roce.QPConfig{Caps: roce.Caps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}

	requests := server.NewChannel()
	l := must(server.CreateID(requests, rdmacm.TCP, nil))
	no(l.Bind(netip.MustParseAddrPort("0.0.0.0:7471")))
	no(l.Listen(0))
	go func() {
		for {
			ev := must(requests.Next(ctx))
			switch ev.Type {
			case rdmacm.ConnectRequest:
				no(ev.ID.CreateQP(nil, config))
				no(ev.ID.Accept(ctx, rdmacm.ConnParam{}))
			case rdmacm.Disconnected:
				no(ev.ID.Disconnect(ctx))
				no(ev.ID.DestroyEP())
				return
			}
		}
	}()

	events := client.NewChannel()
	id := must(client.CreateID(events, rdmacm.TCP, nil))
	no(id.ResolveAddr(ctx, netip.AddrPort{}, netip.MustParseAddrPort("10.0.0.1:7471"), 2*time.Second))
	for {
		ev := must(events.Next(ctx))
		fmt.Println(ev)
		switch ev.Type {
		case rdmacm.AddrResolved:
			no(id.ResolveRoute(ctx, 2*time.Second))
		case rdmacm.RouteResolved:
			no(id.CreateQP(nil, config))
			no(id.Connect(ctx, rdmacm.ConnParam{}))
		case rdmacm.Established:
			no(id.Disconnect(ctx))
		case rdmacm.Disconnected:
			no(id.DestroyEP())
			return
		}
	}
	// Output:
	// RDMA_CM_EVENT_ADDR_RESOLVED
	// RDMA_CM_EVENT_ROUTE_RESOLVED
	// RDMA_CM_EVENT_ESTABLISHED
	// RDMA_CM_EVENT_DISCONNECTED
}

// The synchronous mode: every call waits.
func ExampleHost_CreateEP() {
	ctx := context.Background()
	server, client, done := twoHosts()
	defer done()
	config := roce.QPConfig{Caps: roce.Caps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}

	info := must(server.GetAddrInfo(ctx, "10.0.0.1", "7471", &rdmacm.AddrInfo{Flags: rdmacm.Passive}))
	l := must(server.CreateEP(ctx, info[0], nil, &config))
	no(l.Listen(1))
	received := make(chan string)
	go func() {
		id := must(l.GetRequest(ctx))
		buf := make([]byte, 5)
		m := must(id.RegMsgs(buf))
		no(id.PostRecv(1, m.SGE(0, 5)))
		no(id.Accept(ctx, rdmacm.ConnParam{}))
		must(id.RecvComp(ctx))
		received <- string(buf)
		no(id.Disconnect(ctx))
		close(received)
	}()

	info = must(client.GetAddrInfo(ctx, "10.0.0.1", "7471", nil))
	id := must(client.CreateEP(ctx, info[0], nil, &config))
	m := must(id.RegMsgs([]byte("hello")))
	no(id.Connect(ctx, rdmacm.ConnParam{}))
	no(id.PostSend(1, roce.Signaled, m.SGE(0, 5)))
	fmt.Println(<-received)
	no(id.Disconnect(ctx))
	<-received
	// Output: hello
}

// Datagrams: the client asks the service for its queue pair and sends to it without a
// connection.
func ExampleID_PostUDSend() {
	ctx := context.Background()
	server, client, done := twoHosts()
	defer done()
	config := roce.QPConfig{Caps: roce.Caps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}

	l := must(server.CreateEP(ctx, rdmacm.AddrInfo{Flags: rdmacm.Passive, PortSpace: rdmacm.UDP, Src: netip.MustParseAddrPort("10.0.0.1:7174")}, nil, &config))
	no(l.Listen(1))
	received := make(chan string)
	go func() {
		id := must(l.GetRequest(ctx))
		buf := make([]byte, roce.GRHLen+5)
		m := must(id.RegMsgs(buf))
		no(id.PostRecv(1, m.SGE(0, len(buf))))
		no(id.Accept(ctx, rdmacm.ConnParam{}))
		must(id.RecvComp(ctx))
		received <- string(buf[roce.GRHLen:])
	}()

	id := must(client.CreateEP(ctx, rdmacm.AddrInfo{PortSpace: rdmacm.UDP, Dst: netip.MustParseAddrPort("10.0.0.1:7174")}, nil, &config))
	no(id.Connect(ctx, rdmacm.ConnParam{}))
	to := id.Event().UD
	ah := must(id.Device().CreateAH(ctx, to.AHAttr))
	m := must(id.RegMsgs([]byte("hello")))
	no(id.PostUDSend(1, roce.Signaled, ah, to.QPN, m.SGE(0, 5)))
	fmt.Println(<-received)
	// Output: hello
}

// A multicast group: members attach their queue pairs to receive; a sender need not.
func ExampleID_JoinMulticast() {
	ctx := context.Background()
	one, two, done := twoHosts()
	defer done()
	config := roce.QPConfig{Caps: roce.Caps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}
	group := netip.MustParseAddr("239.1.2.3")
	join := func(h *rdmacm.Host, from string) *rdmacm.ID {
		id := must(h.CreateID(nil, rdmacm.UDP, nil))
		no(id.Bind(netip.MustParseAddrPort(from)))
		no(id.CreateQP(nil, config))
		no(id.JoinMulticast(ctx, group, nil))
		return id
	}
	member, sender := join(one, "10.0.0.1:0"), join(two, "10.0.0.2:0")
	buf := make([]byte, roce.GRHLen+5)
	m := must(member.RegMsgs(buf))
	no(member.PostRecv(1, m.SGE(0, len(buf))))

	to := sender.Event().UD
	ah := must(sender.Device().CreateAH(ctx, to.AHAttr))
	ms := must(sender.RegMsgs([]byte("hello")))
	no(sender.PostUDSend(1, roce.Signaled, ah, to.QPN, ms.SGE(0, 5)))
	must(member.RecvComp(ctx))
	fmt.Printf("%s\n", buf[roce.GRHLen:])
	// Output: hello
}
