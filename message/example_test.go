package message_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/message"
)

// A server exports a counter and sends its token. The client adds to the counter; the server's
// program does nothing for this.
func Example() {
	ctx := context.Background()
	hub := mem.NewHub(mem.Config{})
	nic := func(addr string) *roce.Device {
		ip := netip.MustParseAddr(addr)
		port := must(hub.Port(addr, roce.DerivedMAC(ip)))
		return must(roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{ip}}))
	}
	server, client := nic("10.0.0.1"), nic("10.0.0.2")
	defer server.Close()
	defer client.Close()

	l := must(message.Listen(server, "10.0.0.1:9000", message.Config{}))
	defer l.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn := must(l.Accept(ctx))
		counter := must(conn.Export(make([]byte, 8), message.Atomic))
		token := must(counter.Token().MarshalBinary())
		if err := conn.Send(ctx, token); err != nil {
			panic(err)
		}
		<-conn.Done()
		conn.Close()
	}()

	conn := must(message.Dial(ctx, client, "10.0.0.1:9000", message.Config{}))
	buf := make([]byte, conn.MaxRecv())
	n := must(conn.Recv(ctx, buf))
	var counter message.Token
	if err := counter.UnmarshalBinary(buf[:n]); err != nil {
		panic(err)
	}
	for range 3 {
		fmt.Println(must(conn.FetchAdd(ctx, counter, 0, 5)))
	}
	conn.Close()
	<-done
	// Output:
	// 0
	// 5
	// 10
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
