package roce_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// newNIC is a software NIC on a switch of its own.
func newNIC(addr string) *roce.Device {
	ip := netip.MustParseAddr(addr)
	port := must(mem.NewHub(mem.Config{}).Port(addr, roce.DerivedMAC(ip)))
	return must(roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{ip}}))
}

// selfConnected makes a queue pair that is connected to itself.
func selfConnected(dev *roce.Device, pd *roce.PD, cq *roce.CQ) *roce.QP {
	qp := must(pd.CreateQP(roce.QPConfig{SendCQ: cq}))
	must(0, qp.Init(roce.RemoteWrite, 0))
	must(0, qp.Connect(context.Background(), roce.Peer{AHAttr: roce.AHAttr{DGID: dev.GIDs()[0]}, QPN: qp.Num(),
		MTU: dev.Query().PathMTU, Timeout: 14, RetryCnt: 7, RNRRetry: 7}, 0))
	return qp
}

// Memory is registered in a protection domain, with the rights that work requests
// and peers need. A refused call returns an error with the errno of the verbs.
func ExamplePD_RegMR() {
	dev := newNIC("10.0.0.1")
	defer dev.Close()
	pd := dev.AllocPD()
	mr := must(pd.RegMR(make([]byte, 4096), roce.LocalWrite|roce.RemoteRead))
	fmt.Println(mr.Len(), "bytes; as part of a work request:", mr.SGE(1024, 512).Length)

	_, err := pd.RegMR(make([]byte, 4096), roce.RemoteWrite)
	fmt.Println("REMOTE_WRITE without LOCAL_WRITE:", errors.Is(err, syscall.EINVAL))
	fmt.Println("domain in use:", errors.Is(pd.Close(), syscall.EBUSY))
	must(0, mr.Close())
	must(0, pd.Close())
	// Output:
	// 4096 bytes; as part of a work request: 512
	// REMOTE_WRITE without LOCAL_WRITE: true
	// domain in use: true
}

// Wait blocks until there is a completion to poll. A work request that fails has a
// completion with an error status.
func ExampleCQ_Wait() {
	ctx := context.Background()
	dev := newNIC("10.0.0.1")
	defer dev.Close()
	cq := must(dev.CreateCQ(16))
	qp := selfConnected(dev, dev.AllocPD(), cq)

	must(0, qp.PostSend(&roce.SendWR{ID: 1, Opcode: roce.Write, Flags: roce.Signaled})) // of no bytes
	must(0, qp.PostSend(&roce.SendWR{ID: 2, Opcode: roce.Write, SG: []roce.SGE{{Length: 8, LKey: 0xBAD}}}))
	wcs := make([]roce.WC, 8)
	for left := 2; left > 0; {
		must(0, cq.Wait(ctx))
		n := cq.Poll(wcs)
		for _, wc := range wcs[:n] {
			fmt.Println(wc.ID, wc.Status, wc.Err())
		}
		left -= n
	}
	// Output:
	// 1 SUCCESS <nil>
	// 2 LOC_PROT_ERR local protection error: a scatter/gather element is not covered by its L_Key (LOC_PROT_ERR)
}

// Without the connection manager the two ends exchange their addresses, queue pair
// numbers and first PSNs by any other means.
func ExampleQP_Connect() {
	ctx := context.Background()
	hub := mem.NewHub(mem.Config{MTU: 4200})
	type end struct {
		dev *roce.Device
		cq  *roce.CQ
		qp  *roce.QP
		psn roce.PSN
	}
	var ends [2]end
	for i, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		e := end{dev: exampleNIC(hub, addr)}
		defer e.dev.Close()
		e.cq, e.psn = must(e.dev.CreateCQ(16)), e.dev.RandomPSN()
		e.qp = must(e.dev.AllocPD().CreateQP(roce.QPConfig{Type: roce.RC, SendCQ: e.cq}))
		must(0, e.qp.Init(roce.RemoteWrite|roce.RemoteRead, 0))
		ends[i] = e
	}
	a, b := ends[0], ends[1]

	// Receives go first: the peer may send as soon as it is connected.
	room := make([]byte, 64)
	mr := must(b.qp.PD().RegMR(room, roce.LocalWrite))
	must(0, b.qp.PostRecv(&roce.RecvWR{ID: 7, SG: []roce.SGE{mr.SGE(0, len(room))}}))

	for _, e := range [][2]end{{a, b}, {b, a}} {
		own, peer := e[0], e[1]
		must(0, own.qp.Connect(ctx, roce.Peer{AHAttr: roce.AHAttr{DGID: peer.dev.GIDs()[0]}, QPN: peer.qp.Num(), PSN: peer.psn,
			MTU: own.dev.Query().PathMTU, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, RdAtomic: 16}, own.psn))
	}
	must(0, a.qp.PostSend(&roce.SendWR{Opcode: roce.Send, Inline: []byte("no manager needed")}))
	wc := must(b.cq.Next(ctx))
	fmt.Printf("%v %d %q\n", wc.Opcode, wc.ID, room[:wc.ByteLen])
	// Output:
	// RECV 7 "no manager needed"
}

// An address handle has the destination of a datagram.
func ExampleDevice_CreateAH() {
	ctx := context.Background()
	dev := newNIC("10.0.0.1")
	defer dev.Close()
	peer := must(bth.ParseGID("10.0.0.2"))
	ah := must(dev.CreateAH(ctx, roce.AHAttr{DGID: peer, TrafficClass: 0x68}))
	fmt.Println(ah)
	_, err := dev.CreateAH(ctx, roce.AHAttr{DGID: peer, SGIDIndex: 1})
	fmt.Println("no such address:", err != nil)
	// Output:
	// 10.0.0.1 to 10.0.0.2
	// no such address: true
}

// A queue pair drains its send queue (SQD) before its attributes change.
func ExampleQP_Modify() {
	ctx := context.Background()
	dev := newNIC("10.0.0.1")
	defer dev.Close()
	q := selfConnected(dev, dev.AllocPD(), must(dev.CreateCQ(16)))
	must(0, q.Modify(&roce.Attr{State: roce.StateSQD, SQDNotify: true}, roce.AttrState|roce.AttrSQDNotify))
	event := must(dev.NextEventFunc(ctx, func(e roce.Event) bool { return e.QP == q }))
	fmt.Println(event.Type)
	must(0, q.Modify(&roce.Attr{State: roce.StateSQD, Timeout: 18}, roce.AttrState|roce.AttrTimeout))
	must(0, q.Modify(&roce.Attr{State: roce.StateRTS}, roce.AttrState))
	attr, _ := q.Query()
	fmt.Println(attr.State, attr.Timeout)
	fmt.Println(q.Modify(&roce.Attr{State: roce.StateInit}, roce.AttrState) != nil)
	// Output:
	// SQ_DRAINED
	// RTS 18
	// true
}

// A device reports the attributes of its port, its GID table and its capabilities.
func ExampleDevice_QueryPort() {
	dev := newNIC("10.0.0.1")
	defer dev.Close()
	port := must(dev.QueryPort(1))
	fmt.Println(port.State, port.ActiveMTU, port.LinkLayer)
	for _, e := range dev.QueryGIDTable() {
		fmt.Println(e.Index, e.GID, e.Type)
	}
	fmt.Println(dev.Query().Caps&roce.CapXRC != 0)
	// Output:
	// PORT_ACTIVE 1024 Ethernet
	// 0 ::ffff:10.0.0.1 RoCE v2
	// true
}

// On a completion channel a program waits for several completion queues at once.
func ExampleCompChannel() {
	ctx := context.Background()
	dev := newNIC("10.0.0.1")
	defer dev.Close()
	channel := must(dev.CreateCompChannel())
	cq := must(dev.CreateCQWith(roce.CQConfig{Entries: 16, Channel: channel, UserData: "data"}))
	qp := selfConnected(dev, dev.AllocPD(), cq)

	must(0, cq.RequestNotify(false))
	for id := range uint64(3) {
		must(0, qp.PostSend(&roce.SendWR{ID: id, Opcode: roce.Write, Flags: roce.Signaled}))
	}
	wcs := make([]roce.WC, 2)
	for left := 3; left > 0; {
		ready := must(channel.Next(ctx))
		must(0, ready.RequestNotify(false)) // before polling: nothing is missed
		for n := ready.Poll(wcs); n > 0; n = ready.Poll(wcs) {
			for _, wc := range wcs[:n] {
				fmt.Println(ready.UserData(), wc.ID, wc.Status)
			}
			left -= n
		}
	}
	// Output:
	// data 0 SUCCESS
	// data 1 SUCCESS
	// data 2 SUCCESS
}

// Asynchronous events are about one object or about the port.
func ExampleDevice_NextEvent() {
	hub := mem.NewHub(mem.Config{})
	ip := netip.MustParseAddr("10.0.0.1")
	port := must(hub.Port("nic", roce.DerivedMAC(ip)))
	dev := must(roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{ip}}))
	defer dev.Close()

	port.SetLink(false) // the link goes down
	must(0, dev.SetAddrs([]netip.Addr{ip, netip.MustParseAddr("10.0.0.2")}))
	for range 2 {
		fmt.Println(must(dev.NextEvent(context.Background())))
	}
	// Output:
	// PORT_ERR port 1
	// GID_CHANGE port 1
}
