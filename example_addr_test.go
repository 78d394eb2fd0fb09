package roce_test

import (
	"context"
	"fmt"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link/linktest"
)

// Two devices on UDP sockets of one host: no privilege, no Ethernet. On two hosts each
// opens an address of its own.
func ExampleOpenAddr() {
	ctx := context.Background()
	near, far := linktest.Loopback(61), linktest.Loopback(62) // of 127.0.0.0/8
	a := must(roce.OpenAddr(near, roce.InterfaceConfig{}))
	defer a.Close()
	b := must(roce.OpenAddr(far, roce.InterfaceConfig{}))
	defer b.Close()

	listener := must(b.Listen(ctx, fmt.Sprintf("%v:7471", far), roce.ListenConfig{}))
	defer listener.Close()
	memory := make([]byte, 5)
	accepted := make(chan *roce.MR)
	go func() {
		conn := must(must(listener.Accept(ctx)).Accept(ctx, roce.AcceptConfig{}))
		accepted <- must(conn.QP().PD().RegMR(memory, roce.LocalWrite|roce.RemoteWrite))
	}()
	conn := must(a.Dial(ctx, fmt.Sprintf("%v:7471", far), roce.DialConfig{}))
	mr := <-accepted
	must(0, conn.QP().PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled, Inline: []byte("hello"),
		RemoteAddr: mr.Addr(), RKey: mr.RKey()}))
	wc := must(conn.QP().SendCQ().Next(ctx))
	fmt.Printf("%v %v %q\n", wc.Opcode, wc.Status, memory)
	// Output: RDMA_WRITE SUCCESS "hello"
}
