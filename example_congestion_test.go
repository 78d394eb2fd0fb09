package roce_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/mem"
)

// A switch on the path marks the first packet. The receiver answers with a congestion
// notification packet, which halves the rate of the sender.
func ExampleQP_Congestion() {
	ctx := context.Background()
	hub := mem.NewHub(mem.Config{})
	var devices []*roce.Device
	var qps []*roce.QP
	for i, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		a := netip.MustParseAddr(addr)
		var c fault.Config
		if i == 0 {
			c.Rules = []fault.Rule{{Action: fault.ECN, Dir: fault.Tx, Count: 1}}
		}
		wire := must(fault.Wrap(must(hub.Port(addr, roce.DerivedMAC(a))), c))
		d := must(roce.Open(roce.Config{Ports: []link.Port{wire}, Addrs: []netip.Addr{a}, Options: roce.Options{Polled: true,
			// This port does not report its speed. The interval of an hour
			// keeps the rate from recovering during the example.
			Congestion: &roce.DCQCN{LineRate: 25 * roce.Gbps, IncreaseInterval: 3600e9}}}))
		defer d.Close()
		devices = append(devices, d)
		q := must(d.AllocPD().CreateQP(roce.QPConfig{SendCQ: must(d.CreateCQ(16))}))
		must(0, q.Init(roce.DefaultQPAccess, 0))
		qps = append(qps, q)
	}
	a := qps[0]
	for i, q := range qps {
		must(0, q.Connect(ctx, roce.Peer{AHAttr: roce.AHAttr{DGID: devices[1-i].GIDs()[0]}, QPN: qps[1-i].Num(),
			MTU: roce.MTU1024, Timeout: 14, RetryCnt: 7}, 0))
	}
	fmt.Println(a.Congestion().Rate)

	must(0, a.PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled}))
	for !a.Congestion().Limited {
		devices[1].Progress()
		devices[0].Progress()
	}
	fmt.Println(a.Congestion().Rate, "of", a.Congestion().Target)
	fmt.Println(devices[1].Counters().ECNMarked, devices[1].Counters().CNPsSent, devices[0].Counters().CNPsHandled)
	// Output:
	// 25 Gb/s
	// 12.5 Gb/s of 25 Gb/s
	// 1 1 1
}
