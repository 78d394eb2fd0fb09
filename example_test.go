package roce_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// Two software NICs in one process: the client writes into the server's
// memory and reads it back.
func Example() {
	ctx := context.Background()
	hub := mem.NewHub(mem.Config{MTU: 4200})
	nic := func(addr string) *roce.Device {
		ip := netip.MustParseAddr(addr)
		port := must(hub.Port(addr, roce.DerivedMAC(ip)))
		return must(roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{ip}}))
	}
	server, client := nic("10.0.0.1"), nic("10.0.0.2")
	defer server.Close()
	defer client.Close()

	// The server offers memory. In this example client and server share the variable mr, so
	// the client knows the address and key.
	shared := make([]byte, 4096)
	pd := server.AllocPD()
	mr := must(pd.RegMR(shared, roce.LocalWrite|roce.RemoteWrite|roce.RemoteRead))
	listener := must(server.Listen(ctx, "10.0.0.1:7471", roce.ListenConfig{}))
	go func() {
		request := must(listener.Accept(ctx))
		must(request.Accept(ctx, roce.AcceptConfig{PD: pd}))
	}()

	conn := must(client.Dial(ctx, "10.0.0.1:7471", roce.DialConfig{}))
	defer conn.Close()
	buf := make([]byte, 64)
	local := must(conn.QP().PD().RegMR(buf, roce.LocalWrite))
	copy(buf, "hello, remote memory")
	do := func(op roce.Opcode, off int) {
		err := conn.QP().PostSend(&roce.SendWR{Opcode: op, Flags: roce.Signaled, SG: []roce.SGE{local.SGE(off, 20)},
			RemoteAddr: mr.Addr(), RKey: mr.RKey()})
		if err != nil {
			panic(err)
		}
		wc := must(conn.QP().SendCQ().Next(ctx))
		fmt.Println(wc.Opcode, wc.Status, wc.ByteLen)
	}
	do(roce.Write, 0)
	do(roce.Read, 32)
	fmt.Printf("%s\n", buf[32:52])
	// Output:
	// RDMA_WRITE SUCCESS 20
	// RDMA_READ SUCCESS 20
	// hello, remote memory
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
