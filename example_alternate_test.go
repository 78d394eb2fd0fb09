package roce_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// Two hosts with two addresses each agree on the second ones as the alternate path
// of a connection.
func ExampleConn_LoadAlternate() {
	ctx := context.Background()
	hub := mem.NewHub(mem.Config{MTU: 4200})
	addrs := [][]netip.Addr{
		{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.1.1")},
		{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.1.2")},
	}
	neighbours := roce.Neighbours{}
	var devices []*roce.Device
	for _, a := range addrs {
		mac := roce.DerivedMAC(a[0])
		neighbours[a[0]], neighbours[a[1]] = mac, mac
		port := must(hub.Port(a[0].String(), mac))
		devices = append(devices, must(roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: a, Options: roce.Options{Resolver: neighbours}})))
		defer devices[len(devices)-1].Close()
	}
	listener := must(devices[1].Listen(ctx, "10.0.0.2:7471", roce.ListenConfig{}))
	go func() {
		must(must(listener.Accept(ctx)).Accept(ctx, roce.AcceptConfig{OnAlternate: roce.AnyAlternate}))
	}()

	conn := must(devices[0].Dial(ctx, "10.0.0.2:7471", roce.DialConfig{}))
	must(0, conn.LoadAlternate(ctx, roce.AlternatePath{Local: addrs[0][1], Remote: addrs[1][1]}))
	path, ok := conn.Alternate()
	fmt.Println(path.RemoteGID.Addr(), ok)
	err := conn.LoadAlternate(ctx, roce.AlternatePath{Local: addrs[0][0], Remote: addrs[1][0]})
	fmt.Println(err)
	// Output:
	// 10.0.1.2 true
	// roce: load alternate path: to 10.0.0.2: the alternate path from 10.0.0.1 to 10.0.0.2 is the primary path: invalid argument
}
