package roce_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/goroce/roce"
)

// connectEnds connects two NICs and returns the queue pair of each end.
func connectEnds() (client, server *roce.QP, closeAll func()) {
	ctx := context.Background()
	a, b := twoNICs()
	listener := must(a.Listen(ctx, ":7471", roce.ListenConfig{}))
	accepted := make(chan *roce.Conn)
	go func() {
		request := must(listener.Accept(ctx))
		accepted <- must(request.Accept(ctx, roce.AcceptConfig{}))
	}()
	conn := must(b.Dial(ctx, "10.0.0.1:7471", roce.DialConfig{}))
	return conn.QP(), (<-accepted).QP(), func() { b.Close(); a.Close() }
}

// next waits for a completion and prints it.
func next(cq *roce.CQ) roce.WC {
	wc := must(cq.Next(context.Background()))
	fmt.Println(wc.Opcode, wc.Status)
	return wc
}

// A memory window gives a peer access to a part of a region, until the window is invalidated.
func ExampleQP_BindMW() {
	client, server, closeAll := connectEnds()
	defer closeAll()
	secret := []byte("do not touch | please write here")
	region := must(server.PD().RegMR(secret, roce.LocalWrite|roce.MWBind)) // nothing for peers
	window := must(server.PD().AllocMW(roce.MWType2))
	key := must(server.BindMW(window, roce.Bind{Flags: roce.Signaled, MR: region,
		Addr: region.Addr() + 15, Length: 17, Access: roce.RemoteWrite}))
	next(server.SendCQ())

	write := roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled, Inline: []byte("thanks, and gone."), RemoteAddr: region.Addr() + 15, RKey: key}
	must(0, client.PostSend(&write))
	next(client.SendCQ())
	fmt.Printf("%s\n", secret)

	must(0, server.PostSend(&roce.SendWR{Opcode: roce.LocalInv, Flags: roce.Signaled, InvKey: key}))
	next(server.SendCQ())
	must(0, client.PostSend(&write))
	next(client.SendCQ())
	// Output:
	// BIND_MW SUCCESS
	// RDMA_WRITE SUCCESS
	// do not touch | thanks, and gone.
	// LOCAL_INV SUCCESS
	// RDMA_WRITE REM_ACCESS_ERR
}

// A fast registration opens memory for one command. The client posts the registration
// together with the SEND that carries the key. The peer's answer, a SEND_WITH_INV,
// invalidates the key.
func ExampleFastMR() {
	client, server, closeAll := connectEnds()
	defer closeAll()
	header, body := make([]byte, 6), make([]byte, 10)
	m := must(client.PD().AllocFastReg(roce.FastRegConfig{Pieces: 16}))
	must(0, m.Map(header, body)) // one behind the other
	register := m.RegWR(roce.LocalWrite | roce.RemoteWrite)
	must(0, server.PostRecv(&roce.RecvWR{}))
	must(0, client.PostRecv(&roce.RecvWR{}))
	must(client.PostSends([]roce.SendWR{register, {Opcode: roce.SendImm, Imm: uint32(register.RKey)}}))

	key := roce.RKey(next(server.RecvCQ()).Imm)
	must(server.PostSends([]roce.SendWR{
		{Opcode: roce.Write, Inline: []byte("head: body here."), RemoteAddr: m.Addr(), RKey: key},
		{Opcode: roce.SendInv, InvKey: key},
	}))
	next(client.RecvCQ())
	fmt.Printf("%q %q, valid: %v\n", header, body, m.Valid())
	// Output:
	// RECV SUCCESS
	// RECV SUCCESS
	// "head: " "body here.", valid: false
}

// A pool creates registrations once and lends them to callers.
func ExampleFastRegPool() {
	client, _, closeAll := connectEnds()
	defer closeAll()
	pool := must(client.PD().NewFastRegPool(1, roce.FastRegConfig{Pieces: 4}))
	for range 2 {
		m := must(pool.Get())
		_, err := pool.Get()
		fmt.Println(err)
		must(0, m.Map(make([]byte, 100)))
		register := m.RegWR(roce.LocalWrite)
		must(0, client.PostSend(&register))
		invalidate := m.InvWR() // of the key that was posted
		invalidate.Flags = roce.Signaled
		must(0, client.PostSend(&invalidate))
		next(client.SendCQ())
		must(0, pool.Put(m))
	}
	fmt.Println(pool.Close())
	// Output:
	// roce: get registration: all of the pool are out; put some back or make it larger: resource temporarily unavailable
	// LOCAL_INV SUCCESS
	// roce: get registration: all of the pool are out; put some back or make it larger: resource temporarily unavailable
	// LOCAL_INV SUCCESS
	// <nil>
}

// Reregister gives a region other memory under the same keys.
func ExampleMR_Reregister() {
	client, server, closeAll := connectEnds()
	defer closeAll()
	region := must(server.PD().RegMRIova(make([]byte, 16), 0x1000, roce.LocalWrite|roce.RemoteWrite))
	larger := make([]byte, 32)
	must(0, region.Reregister(roce.MRChange{Change: roce.ReregTranslation, Mem: larger, IOVA: 0x1000, HasIOVA: true}))
	must(0, client.PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled, Inline: []byte("beyond"), RemoteAddr: 0x1000 + 20, RKey: region.RKey()}))
	next(client.SendCQ())
	fmt.Printf("%s\n", larger[20:26])
	// Output:
	// RDMA_WRITE SUCCESS
	// beyond
}

// An indirect region puts scattered memory behind one key: here, the third
// column of a table that is stored by rows.
func ExamplePD_RegIndirect() {
	client, server, closeAll := connectEnds()
	defer closeAll()
	table := []byte("ab1cd,ab2cd,ab3cd,ab4cd,")
	rows := must(server.PD().RegMR(table, roce.LocalWrite|roce.RemoteRead|roce.RemoteWrite))
	column := must(server.PD().RegIndirect(roce.Layout{
		Parts:  []roce.Part{{MR: rows, Offset: 2, Length: 1, Stride: 6}},
		Repeat: 4,
	}, roce.LocalWrite|roce.RemoteWrite))
	must(0, client.PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled, Inline: []byte("WXYZ"), RemoteAddr: column.Addr(), RKey: column.RKey()}))
	next(client.SendCQ())
	fmt.Printf("%s\n", table)
	fmt.Println(errors.Is(rows.Close(), syscall.EBUSY)) // the column is made of it
	// Output:
	// RDMA_WRITE SUCCESS
	// abWcd,abXcd,abYcd,abZcd,
	// true
}
