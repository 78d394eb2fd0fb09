package roce_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/goroce/roce"
)

// remoteMemory is a client's view of memory at a server.
type remoteMemory struct {
	*roce.QP
	scratch *roce.MR // 64 bytes at the client
	server  *roce.PD
	close   func()
}

// connectMemory connects two NICs, with masked atomics enabled.
func connectMemory() remoteMemory {
	ctx := context.Background()
	server, client := twoNICs()
	pd := server.AllocPD()
	config := roce.QPConfig{MaskedAtomics: true, MaxAtomicArg: 32}
	listener := must(server.Listen(ctx, ":7471", roce.ListenConfig{}))
	accepted := make(chan *roce.Conn)
	go func() {
		request := must(listener.Accept(ctx))
		accepted <- must(request.Accept(ctx, roce.AcceptConfig{PD: pd, QPConfig: config}))
	}()
	conn := must(client.Dial(ctx, "10.0.0.1:7471", roce.DialConfig{QPConfig: config}))
	<-accepted
	scratch := must(conn.QP().PD().RegMR(make([]byte, 64), roce.LocalWrite))
	return remoteMemory{conn.QP(), scratch, pd, func() { client.Close(); server.Close() }}
}

// do carries out one operation on a region of the server.
func (m remoteMemory) do(target *roce.MR, off int, wr roce.SendWR) {
	wr.Flags, wr.RemoteAddr, wr.RKey = roce.Signaled, target.Addr()+uint64(off), target.RKey()
	must(0, m.PostSend(&wr))
	wc := must(m.SendCQ().Next(context.Background()))
	fmt.Println(wc.Opcode, wc.Status)
}

// A FLUSH completes when all data that the peer wrote before it is persistent.
func ExamplePD_RegMRPersistent() {
	remote := connectMemory()
	defer remote.close()
	file := make([]byte, 4096) // a mapped file, say
	target := must(remote.server.RegMRPersistent(file, roce.LocalWrite|roce.RemoteWrite|roce.FlushPersistent, func(b []byte) error {
		fmt.Printf("msync of %q\n", b)
		return nil
	}))
	copy(remote.scratch.Bytes(), "record 1")
	remote.do(target, 512, roce.SendWR{Opcode: roce.Write, SG: []roce.SGE{remote.scratch.SGE(0, 8)}})
	remote.do(target, 512, roce.SendWR{Opcode: roce.Flush, FlushType: roce.PlacePersistent, Length: 8})
	// Output:
	// RDMA_WRITE SUCCESS
	// msync of "record 1"
	// FLUSH SUCCESS
}

// A word has four counters of 16 bits. One of them wraps around without a carry into
// its neighbour.
func ExampleMaskedFetchAdd() {
	remote := connectMemory()
	defer remote.close()
	word := make([]byte, 8)
	target := must(remote.server.RegMR(word, roce.LocalWrite|roce.RemoteAtomic))
	binary.NativeEndian.PutUint64(word, 0x0001_FFFF_0003_0004)
	remote.do(target, 0, roce.SendWR{Opcode: roce.MaskedFetchAdd, SG: []roce.SGE{remote.scratch.SGE(0, 8)},
		CompareAdd: 0x0001_0001_0001_0001, Boundary: 0x8000_8000_8000_8000})
	fmt.Printf("%016x, was %016x\n", binary.NativeEndian.Uint64(word), binary.NativeEndian.Uint64(remote.scratch.Bytes()))
	// Output:
	// MASKED_FETCH_ADD SUCCESS
	// 0002000000040005, was 0001ffff00030004
}

// The client takes a lock, the uppermost bit of a byte. The other bits do not change.
func ExampleMaskedCompareSwap() {
	remote := connectMemory()
	defer remote.close()
	byte7 := make([]byte, 8)
	target := must(remote.server.RegMR(byte7, roce.LocalWrite|roce.RemoteAtomic))
	byte7[7] = 0x05
	remote.do(target, 7, roce.SendWR{Opcode: roce.MaskedCompareSwap, SG: []roce.SGE{remote.scratch.SGE(0, 1)},
		CompareAdd: 0x00, CompareMask: 0x80, Swap: 0x80, SwapMask: 0x80})
	fmt.Printf("%x, was %x\n", byte7[7], remote.scratch.Bytes()[0])
	// Output:
	// MASKED_COMP_SWAP SUCCESS
	// 85, was 5
}

// The client replaces an entry of two words, a version and a value, if the entry still has the version that the client has read.
func ExampleMaskedArgs() {
	remote := connectMemory()
	defer remote.close()
	entry := make([]uint64, 2)
	target := must(remote.server.RegMR(unsafe.Slice((*byte)(unsafe.Pointer(&entry[0])), 16), roce.LocalWrite|roce.RemoteAtomic))
	entry[0], entry[1] = 7, 1234
	all := ^uint64(0)
	remote.do(target, 0, roce.SendWR{Opcode: roce.MaskedCompareSwap, SG: []roce.SGE{remote.scratch.SGE(0, 16)},
		Args: &roce.MaskedArgs{CompareAdd: roce.Words{7}, CompareMask: roce.Words{all}, Swap: roce.Words{8, 5678}, SwapMask: roce.Words{all, all}}})
	fmt.Println(entry, "was", binary.NativeEndian.Uint64(remote.scratch.Bytes()), binary.NativeEndian.Uint64(remote.scratch.Bytes()[8:]))
	// Output:
	// MASKED_COMP_SWAP SUCCESS
	// [8 5678] was 7 1234
}

// The peer writes a message that ends with its number. The server sees the message
// without a completion.
func ExampleMR_Load64() {
	remote := connectMemory()
	defer remote.close()
	slot := make([]uint64, 3) // aligned
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(&slot[0])), 24)
	target := must(remote.server.RegMR(bytes, roce.LocalWrite|roce.RemoteWrite|roce.Watched))

	seen := make(chan string)
	go func() {
		for target.Load64(16) != 1 {
			runtime.Gosched()
		}
		seen <- string(target.Bytes()[:16]) // arrived before the number
	}()
	message := append([]byte("no. 1, 16 bytes:"), binary.NativeEndian.AppendUint64(nil, 1)...)
	copy(remote.scratch.Bytes(), message)
	remote.do(target, 0, roce.SendWR{Opcode: roce.Write, SG: []roce.SGE{remote.scratch.SGE(0, 24)}})
	fmt.Println(<-seen)
	// Output:
	// RDMA_WRITE SUCCESS
	// no. 1, 16 bytes:
}

// The peer stores a word with ATOMIC_WRITE. The region counts the FLUSHes.
func ExampleMR_Flushes() {
	remote := connectMemory()
	defer remote.close()
	target := must(remote.server.RegMR(make([]byte, 64), roce.LocalWrite|roce.RemoteWrite|roce.FlushGlobal))
	remote.do(target, 8, roce.SendWR{Opcode: roce.AtomicWrite, Inline: []byte("8 bytes!")})
	remote.do(target, 0, roce.SendWR{Opcode: roce.Flush, FlushType: roce.PlaceGlobal, Selectivity: roce.FlushMR})
	fmt.Printf("%d FLUSH, %q\n", target.Flushes(), target.Bytes()[8:16])
	// Output:
	// ATOMIC_WRITE SUCCESS
	// FLUSH SUCCESS
	// 1 FLUSH, "8 bytes!"
}
