// Command remotemem shows one-sided RDMA between two hosts. The server offers
// a piece of memory and then does nothing. The client writes to the memory,
// reads it back, and increments a counter in it atomically.
//
//	server$ remotemem -dev eth0 -listen 10.0.0.1:7471
//	client$ remotemem -dev eth0 -connect 10.0.0.1:7471
//
// Either end may be a program on a RoCEv2 adapter. A server must send the same
// 12 bytes of private data: address and key of the memory, big-endian.
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/goroce/roce"
)

const size = 4096

func main() {
	dev := flag.String("dev", "", "network interface (needs CAP_NET_RAW)")
	listen := flag.String("listen", "", "serve on this `address:port`")
	connect := flag.String("connect", "", "use the memory of the server at this `address:port`")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *dev == "" || (*listen == "") == (*connect == "") {
		log.Fatal("give -dev and either -listen or -connect; see -help")
	}
	nic, err := roce.OpenInterface(*dev, roce.InterfaceConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer nic.Close()
	if *listen != "" {
		err = serve(ctx, nic, *listen)
	} else {
		err = use(ctx, nic, *connect)
	}
	if err != nil {
		log.Print(err)
	}
}

// serve offers one piece of memory to all clients.
func serve(ctx context.Context, nic *roce.Device, addr string) error {
	pd := nic.AllocPD()
	mr, err := pd.RegMR(make([]byte, size), roce.LocalWrite|roce.RemoteWrite|roce.RemoteRead|roce.RemoteAtomic)
	if err != nil {
		return err
	}
	ticket := binary.BigEndian.AppendUint64(nil, mr.Addr())
	ticket = binary.BigEndian.AppendUint32(ticket, uint32(mr.RKey()))
	l, err := nic.Listen(ctx, addr, roce.ListenConfig{})
	if err != nil {
		return err
	}
	fmt.Println("offering", size, "bytes on", l.Addr())
	for handshakes := make(chan struct{}, 64); ; {
		handshakes <- struct{}{}
		request, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		go func() { // a peer that does not complete the handshake holds one of 64 places
			conn, err := request.Accept(ctx, roce.AcceptConfig{PD: pd, Param: roce.ConnParam{PrivateData: ticket}})
			<-handshakes
			if err != nil {
				log.Print(err)
				return
			}
			<-conn.Done()
			fmt.Printf("%v is gone; the memory begins with %.32q\n", conn.RemoteAddr(), mr.Bytes())
			conn.Close()
		}()
	}
}

// use writes to the server's memory, reads it, and increments the counter in it.
func use(ctx context.Context, nic *roce.Device, addr string) error {
	conn, err := nic.Dial(ctx, addr, roce.DialConfig{})
	if err != nil {
		return err
	}
	defer conn.Close()
	ticket := conn.PrivateData() // padded with zeros
	remote, key := binary.BigEndian.Uint64(ticket), roce.RKey(binary.BigEndian.Uint32(ticket[8:]))
	mr, err := conn.QP().PD().RegMR(make([]byte, size), roce.LocalWrite)
	if err != nil {
		return err
	}
	defer mr.Close()
	text := fmt.Sprintf("hello from process %d", os.Getpid())
	copy(mr.Bytes(), text)
	for _, wr := range []roce.SendWR{
		{Opcode: roce.Write, SG: []roce.SGE{mr.SGE(0, len(text))}, RemoteAddr: remote},
		{Opcode: roce.Read, SG: []roce.SGE{mr.SGE(1024, len(text))}, RemoteAddr: remote},
		{Opcode: roce.FetchAdd, SG: []roce.SGE{mr.SGE(2048, 8)}, RemoteAddr: remote + size - 8, CompareAdd: 1},
	} {
		wr.Flags, wr.RKey = roce.Signaled, key
		if err := conn.QP().PostSend(&wr); err != nil {
			return err
		}
		wc, err := conn.QP().SendCQ().Next(ctx)
		if err != nil {
			return err
		}
		if err := wc.Err(); err != nil {
			return err
		}
	}
	fmt.Printf("read back %q; the counter stood at %d\n", mr.Bytes()[1024:1024+len(text)], binary.NativeEndian.Uint64(mr.Bytes()[2048:]))
	return conn.Disconnect(ctx)
}
