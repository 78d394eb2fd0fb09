package ofi_test

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/ofi"
)

// The two programs with which kernel OpenFabrics Interfaces (kOFI) explains connected
// endpoints: a server that waits for a connection request and accepts it, and a client.
func Example() {
	hub := mem.NewHub(mem.Config{})
	nic := func(addr string) *roce.Device {
		ip := netip.MustParseAddr(addr)
		port, err := hub.Port(addr, roce.DerivedMAC(ip))
		ok(err)
		d, err := roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{ip}})
		ok(err)
		return d
	}
	a, b := nic("10.0.0.1"), nic("10.0.0.2")
	defer a.Close()
	defer b.Close()

	listening, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		server(a, listening)
	}()
	<-listening
	client(b)
	<-done
	// Unordered output:
	// server: request with "Private Data"
	// client: connected, private data "accepted"
	// server: connected
	// server: received "*** Client Connected"
	// server: shut down
}

func server(nic *roce.Device, listening chan<- struct{}) {
	ctx := context.Background()
	info, err := ofi.GetInfo(nic, "10.0.0.1", "7471", ofi.Source, nil)
	ok(err)
	fabric, err := ofi.OpenFabric(info)
	ok(err)
	eq := fabric.OpenEQ()
	defer eq.Close()
	pep, err := fabric.OpenPassive(info, eq, nil)
	ok(err)
	ok(pep.Listen())
	defer pep.Close()
	close(listening)

	// Wait for a client's request.
	event, err := eq.Read(ctx)
	ok(err)
	fmt.Printf("server: request with %q\n", event.Data)
	if string(event.Data) != "Private Data" {
		event.Info.Request.Reject([]byte("wrong private data"))
		return
	}

	// A new endpoint for the request, with queues of its own.
	domain, err := fabric.OpenDomain(event.Info)
	ok(err)
	ep, err := domain.OpenEndpoint(event.Info, "application context")
	ok(err)
	sends, err := domain.OpenCQ(16, ofi.FormatMsg)
	ok(err)
	recvs, err := domain.OpenCQ(16, ofi.FormatMsg)
	ok(err)
	ok(ep.BindEQ(eq))
	ok(ep.BindCQ(sends, true, false))
	ok(ep.BindCQ(recvs, false, true))
	ok(ep.Enable())

	// Post a receive before accepting.
	msg := make([]byte, 64)
	mr, err := domain.RegMR(msg, 0)
	ok(err)
	ok(ep.Recv(msg, mr.Desc(), "the receive"))
	ok(ep.Accept([]byte("accepted")))
	event, err = eq.Read(ctx)
	ok(err)
	if event.Type != ofi.Connected || event.Endpoint != ep {
		panic("unexpected event")
	}
	fmt.Println("server: connected")

	var done [1]ofi.Entry
	_, err = recvs.SRead(ctx, done[:])
	ok(err)
	fmt.Printf("server: received %q\n", msg[:done[0].Len])
	event, err = eq.Read(ctx)
	ok(err)
	if event.Type == ofi.Shutdown {
		fmt.Println("server: shut down")
	}
	ok(ep.Close())
	ok(sends.Close())
	ok(recvs.Close())
	ok(mr.Close())
	ok(domain.Close())
}

func client(nic *roce.Device) {
	ctx := context.Background()
	info, err := ofi.GetInfo(nic, "10.0.0.1", "7471", 0, nil)
	ok(err)
	fabric, err := ofi.OpenFabric(info)
	ok(err)
	eq := fabric.OpenEQ()
	defer eq.Close()
	domain, err := fabric.OpenDomain(info)
	ok(err)
	queue, err := domain.OpenCQ(16, ofi.FormatContext)
	ok(err)
	ep, err := domain.OpenEndpoint(info, "application context")
	ok(err)
	ok(ep.BindEQ(eq))
	ok(ep.BindCQ(queue, true, true))
	ok(ep.Enable())
	ok(ep.Connect(netip.AddrPort{}, []byte("Private Data"))) // to the address in info

	// Do something useful, or wait for the server to accept.
	event, err := eq.Read(ctx)
	ok(err) // an *ofi.EQError if it did not
	fmt.Printf("client: connected, private data %q\n", event.Data)

	msg := []byte("*** Client Connected")
	mr, err := domain.RegMR(msg, ofi.SendAccess)
	ok(err)
	ok(ep.Send(msg, mr.Desc(), nil))
	_, err = queue.SRead(ctx, make([]ofi.Entry, 1))
	ok(err)
	ok(ep.Shutdown(ctx))
	ok(ep.Close())
	ok(mr.Close())
	ok(queue.Close())
	ok(domain.Close())
}

func ok(err error) {
	if err != nil {
		panic(err)
	}
}
