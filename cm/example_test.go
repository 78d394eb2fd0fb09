package cm_test

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/mono"
)

// Two Managers connect; a loop passes the datagrams from one to the other. A driver would send and
// receive the datagrams by its port, and pass the present time.
func Example() {
	var (
		now      mono.Time
		a, b     = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
		hello, _ = cm.NewManager(cm.Config{GUID: 1, Rand: counter(100)})
		world, _ = cm.NewManager(cm.Config{GUID: 2, Rand: counter(200)})
		service  = cm.Service(cm.PortSpaceTCP, 7471)
	)
	world.Listen(cm.ListenParam{ServiceID: service})
	c, err := hello.Connect(now, cm.ConnectParam{
		ServiceID: service,
		Local:     bth.GIDFrom(a), Remote: bth.GIDFrom(b),
		Src: netip.AddrPortFrom(a, 40000), Dst: netip.AddrPortFrom(b, 7471),
		QPN: 0x11, MTU: bth.MTU1024, RetryCount: 7, RNRRetryCount: 7,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 4 {
		for _, end := range []struct{ m, peer *cm.Manager }{{hello, world}, {world, hello}} {
			for o, ok := end.m.NextMAD(); ok; o, ok = end.m.NextMAD() {
				msg, _ := cm.DecodeMAD(o.MAD[:])
				fmt.Println(msg.Attribute())
				now = now.Add(10 * time.Microsecond)
				end.peer.HandleMAD(now, o.From, o.To, o.MAD[:])
			}
			for e, ok := end.m.NextEvent(); ok; e, ok = end.m.NextEvent() {
				switch e.Kind {
				case cm.ConnectRequest: // first move the QP to RTS with e.Conn.AcceptAttr
					e.Conn.Accept(now, cm.AcceptParam{QPN: 0x22, RNRRetryCount: 7})
				case cm.ConnectResponse: // first move the QP to RTS with e.Conn.QPAttr
					e.Conn.ReadyToUse(now, nil)
				case cm.Established:
					fmt.Println("established with", e.Conn.RemoteAddr())
				}
			}
		}
	}
	attr, _ := c.QPAttr()
	fmt.Println("my peer is", attr.DestQPN)
	// Output:
	// REQ
	// REP
	// RTU
	// established with 10.0.0.1:40000
	// my peer is 0x22
}

func counter(n uint32) func() uint32 {
	return func() uint32 { n++; return n }
}
