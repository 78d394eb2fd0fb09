package roce_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// exampleUD makes a UD queue pair in RTS with room for one datagram.
func exampleUD(d *roce.Device) (q *roce.QP, room *roce.MR) {
	pd, queue := d.AllocPD(), must(d.CreateCQ(10))
	q = must(pd.CreateQP(roce.QPConfig{Type: roce.UD, SendCQ: queue}))
	room = must(pd.RegMR(make([]byte, roce.GRHLen+64), roce.LocalWrite))
	do(q.Init(0, 0x11111111))
	do(q.PostRecv(&roce.RecvWR{SG: []roce.SGE{room.SGE(0, roce.GRHLen+64)}}))
	do(q.Ready(0))
	return q, room
}

func exampleNIC(hub *mem.Hub, addr string) *roce.Device {
	ip := netip.MustParseAddr(addr)
	port := must(hub.Port(addr, roce.DerivedMAC(ip)))
	return must(roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{ip}}))
}

// The server answers a datagram to the address from which it came.
func ExampleDevice_CreateAHFromWC() {
	ctx := context.Background()
	hub := mem.NewHub(mem.Config{})
	server, client := exampleNIC(hub, "10.0.0.1"), exampleNIC(hub, "10.0.0.2")
	defer server.Close()
	defer client.Close()
	sq, sroom := exampleUD(server)
	cq, croom := exampleUD(client)

	ah := must(client.CreateAH(ctx, roce.AHAttr{DGID: server.GIDs()[0]}))
	do(cq.PostSend(&roce.SendWR{Opcode: roce.Send, Inline: []byte("who is there?"), AH: ah, RemoteQPN: sq.Num(), RemoteQKey: 0x11111111}))

	wc := must(sq.RecvCQ().Next(ctx))
	fmt.Printf("server got %q\n", sroom.Bytes()[roce.GRHLen:wc.ByteLen])
	back := must(server.CreateAHFromWC(ctx, &wc, sroom.Bytes()[:roce.GRHLen]))
	fmt.Println("it came from", back.Dst())
	do(sq.PostSend(&roce.SendWR{Opcode: roce.Send, Inline: []byte("it is me"), AH: back, RemoteQPN: wc.SrcQPN, RemoteQKey: 0x11111111}))

	wc = must(cq.RecvCQ().Next(ctx))
	fmt.Printf("client got %q\n", croom.Bytes()[roce.GRHLen:wc.ByteLen])
	// Output:
	// server got "who is there?"
	// it came from 10.0.0.2
	// client got "it is me"
}

// A datagram to a group reaches every attached queue pair.
func ExampleQP_AttachMulticast() {
	ctx := context.Background()
	group, _ := bth.ParseGID("239.1.2.3")
	hub := mem.NewHub(mem.Config{})
	var rooms []*roce.MR
	var queues []*roce.CQ
	for _, addr := range []string{"10.0.0.1", "10.0.0.2"} {
		nic := exampleNIC(hub, addr)
		defer nic.Close()
		q, room := exampleUD(nic)
		do(q.AttachMulticast(group))
		rooms, queues = append(rooms, room), append(queues, q.RecvCQ())
	}
	sender := exampleNIC(hub, "10.0.0.9")
	defer sender.Close()
	q, _ := exampleUD(sender)
	ah := must(sender.CreateAH(ctx, roce.AHAttr{DGID: group}))
	do(q.PostSend(&roce.SendWR{Opcode: roce.Send, Inline: []byte("hello, everybody"), AH: ah, RemoteQPN: roce.QPNMulticast, RemoteQKey: 0x11111111}))
	for i, queue := range queues {
		wc := must(queue.Next(ctx))
		fmt.Printf("member %d got %q\n", i, rooms[i].Bytes()[roce.GRHLen:wc.ByteLen])
	}
	// Output:
	// member 0 got "hello, everybody"
	// member 1 got "hello, everybody"
}

// A client asks the connection manager for a service's queue pair and sends to
// it.
func ExampleDevice_ResolveUD() {
	ctx := context.Background()
	hub := mem.NewHub(mem.Config{})
	server, client := exampleNIC(hub, "10.0.0.1"), exampleNIC(hub, "10.0.0.2")
	defer server.Close()
	defer client.Close()
	sq, room := exampleUD(server)
	listener := must(server.ListenUD(ctx, "10.0.0.1:7174", roce.ListenConfig{}))
	go func() {
		request := must(listener.Accept(ctx))
		do(request.Accept(sq, []byte("welcome")))
	}()

	peer := must(client.ResolveUD(ctx, "10.0.0.1:7174", roce.ResolveConfig{}))
	fmt.Printf("%s, the Q_Key is %v\n", peer.PrivateData[:7], peer.QKey)
	cq, _ := exampleUD(client)
	wr := roce.SendWR{Opcode: roce.Send, Inline: []byte("hello")}
	peer.Address(&wr)
	do(cq.PostSend(&wr))
	wc := must(sq.RecvCQ().Next(ctx))
	fmt.Printf("%s\n", room.Bytes()[roce.GRHLen:wc.ByteLen])
	// Output:
	// welcome, the Q_Key is 0x11111111
	// hello
}

func do(err error) {
	if err != nil {
		panic(err)
	}
}
