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

// Both ends of a connection have two addresses and agree to use the second ones
// if the first ones fail. Then a fault cuts off the first address of one end.
func ExampleQP_Rearm() {
	ctx := context.Background()
	hub := mem.NewHub(mem.Config{MTU: 4200})
	addrs := [][]netip.Addr{
		{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.1.1")},
		{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.1.2")},
	}
	neighbours := roce.Neighbours{}
	var wires []*fault.Port
	var devices []*roce.Device
	for _, a := range addrs {
		mac := roce.DerivedMAC(a[0])
		neighbours[a[0]], neighbours[a[1]] = mac, mac
		wire := must(fault.Wrap(must(hub.Port(a[0].String(), mac)), fault.Config{}))
		wires = append(wires, wire)
		devices = append(devices, must(roce.Open(roce.Config{Ports: []link.Port{wire}, Addrs: a, Options: roce.Options{Resolver: neighbours}})))
		defer devices[len(devices)-1].Close()
	}

	// Two queue pairs, connected without the connection manager.
	var qps []*roce.QP
	for _, d := range devices {
		q := must(d.AllocPD().CreateQP(roce.QPConfig{SendCQ: must(d.CreateCQ(16))}))
		must(0, q.Init(roce.DefaultQPAccess, 0))
		qps = append(qps, q)
	}
	for i, q := range qps {
		peer := roce.Peer{AHAttr: roce.AHAttr{DGID: devices[1-i].GIDs()[0]}, QPN: qps[1-i].Num(), MTU: devices[i].Query().PathMTU,
			Timeout: 12, RetryCnt: 7, RNRRetry: 7, RdAtomic: 1}
		must(0, q.Connect(ctx, peer, 0))
	}

	// Each end loads the alternate path and re-arms.
	for i, q := range qps {
		must(0, q.LoadAlternate(ctx, roce.AHAttr{SGIDIndex: 1, DGID: devices[1-i].GIDs()[1]}))
		must(0, q.Rearm())
	}
	a := qps[0]
	write := func() {
		must(0, a.PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled}))
		wc := must(a.SendCQ().Next(ctx))
		path, _ := a.Path()
		fmt.Println(wc.Status, a.MigState(), path.DGID.Addr())
	}
	write()
	must(0, wires[0].AddRule(fault.Rule{Action: fault.Drop, Addr: fault.Is(addrs[0][0])}))
	write()
	for _, d := range devices {
		fmt.Println(must(d.NextEvent(ctx)).Type)
	}
	// Output:
	// SUCCESS ARMED 10.0.0.2
	// SUCCESS MIGRATED 10.0.1.2
	// PATH_MIG
	// PATH_MIG
}
