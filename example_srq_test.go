package roce_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// twoNICs are a server, 10.0.0.1, and a client, 10.0.0.2, on one switch.
func twoNICs() (server, client *roce.Device) {
	hub := mem.NewHub(mem.Config{})
	nic := func(addr string) *roce.Device {
		ip := netip.MustParseAddr(addr)
		port := must(hub.Port(addr, roce.DerivedMAC(ip)))
		return must(roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{ip}}))
	}
	return nic("10.0.0.1"), nic("10.0.0.2")
}

// Two connections of a server take their receives from one shared queue. An event
// tells the server when few receives are left.
func ExamplePD_CreateSRQ() {
	ctx := context.Background()
	server, client := twoNICs()
	defer server.Close()
	defer client.Close()

	pd := server.AllocPD()
	queue := must(pd.CreateSRQ(roce.SRQConfig{MaxWR: 7, Limit: 6}))
	buf := make([]byte, 7*64)
	mr := must(pd.RegMR(buf, roce.LocalWrite))
	for i := range 7 {
		if err := queue.PostRecv(&roce.RecvWR{ID: uint64(i), SG: []roce.SGE{mr.SGE(i*64, 64)}}); err != nil {
			panic(err)
		}
	}
	done := must(server.CreateCQ(15)) // of all connections
	listener := must(server.Listen(ctx, ":7471", roce.ListenConfig{}))
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for range 2 {
			request := must(listener.Accept(ctx))
			must(request.Accept(ctx, roce.AcceptConfig{PD: pd, QPConfig: roce.QPConfig{RecvCQ: done, SRQ: queue}}))
		}
	}()
	for i := range 2 {
		conn := must(client.Dial(ctx, "10.0.0.1:7471", roce.DialConfig{}))
		defer conn.Close()
		if err := conn.QP().PostSend(&roce.SendWR{Opcode: roce.Send, Inline: fmt.Appendf(nil, "hello from %d", i)}); err != nil {
			panic(err)
		}
		wc := must(done.Next(ctx))
		fmt.Printf("receive %d: %s\n", wc.ID, buf[wc.ID*64:][:wc.ByteLen])
	}
	<-accepted
	event := must(server.NextEvent(ctx))
	fmt.Println(event.Type, event.SRQ == queue)
	// Output:
	// receive 0: hello from 0
	// receive 1: hello from 1
	// SRQ_LIMIT_REACHED true
}
