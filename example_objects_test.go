package roce_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/goroce/roce"
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

// A completion channel is one place to wait for several completion queues.
func ExampleCompChannel() {
	ctx := context.Background()
	dev := newNIC("10.0.0.1")
	defer dev.Close()
	channel := must(dev.CreateCompChannel())
	cq := must(dev.CreateCQEx(roce.CQConfig{Entries: 16, Channel: channel, UserData: "data"}))
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

	port.SetLink(false) // somebody pulls the cable
	must(0, dev.SetAddrs([]netip.Addr{ip, netip.MustParseAddr("10.0.0.2")}))
	for range 2 {
		fmt.Println(must(dev.NextEvent(context.Background())))
	}
	// Output:
	// PORT_ERR port 1
	// GID_CHANGE port 1
}
