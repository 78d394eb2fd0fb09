package rsocket

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/notify"
)

// endpoint is one end of a stream: memory, queue pair and the protocol's state.
// A goroutine, serve, handles completions.
type endpoint struct {
	cfg Config
	pd  *roce.PD
	cq  *roce.CQ
	qp  *roce.QP

	table, early []byte // made before the peer is confirmed: the tables that the peer writes, and a buffer for its first data
	sbuf, rbuf   []byte
	tmr          *roce.MR // of table and early
	smr, rmr     *roce.MR
	served       chan struct{} // closed when serve has ended
	over         chan struct{} // closed when the stream has ended

	readable, writable, idle notify.Chan // each has a token when its waiter should check the state

	mu    sync.Mutex // guards the fields below
	watch watcher    // notified when readable or writable gets a token
	tx    sender
	rx    receiver
	peer  hello
	maps  []mapping  // of the peer's memory, as the peer announced them
	ours  []*Mapping // ours, announced to the peer

	leaving sync.WaitGroup // mappings in Close

	busy      int   // work requests in progress
	peerShut  bool  // the peer sends no more data
	readShut  bool  // CloseRead was called: the program reads no more data
	discard   bool  // data that has arrived is also dropped
	writeShut bool  // no more data is sent
	told      bool  // the peer has been told that no more data is sent
	ended     bool  // the stream has ended: the peer disconnected, or it broke
	err       error // reason if it broke
	lost      bool  // data that was sent failed: the peer may have missed it
	dead      bool  // the queue pair takes no work request any more
}

// newEndpoint makes the objects for a stream before its peer is confirmed. They need little
// memory, because any host can request a stream.
func newEndpoint(d *roce.Device, cfg Config) (e *endpoint, err error) {
	tables := halves*extentLen + cfg.Maps*mappingLen
	first := make([]byte, tables+earlyLen)
	e = &endpoint{cfg: cfg, pd: d.AllocPD(), served: make(chan struct{}), over: make(chan struct{}),
		readable: notify.New(), writable: notify.New(), idle: notify.New(),
		table: first[:tables:tables], early: first[tables:]}
	defer func() {
		if err != nil {
			e.release()
		}
	}()
	if e.tmr, err = e.pd.RegMR(first, roce.LocalWrite|roce.RemoteWrite); err != nil {
		return nil, err
	}
	if e.cq, err = d.CreateCQ(cfg.SendDepth + cfg.RecvDepth + ctrlReserve); err != nil {
		return nil, err
	}
	return e, nil
}

// qpConfig returns the configuration of the stream's queue pair.
func (e *endpoint) qpConfig() roce.QPConfig {
	return roce.QPConfig{SendCQ: e.cq, RecvCQ: e.cq,
		Caps: roce.Caps{MaxSendWR: e.cfg.SendDepth, MaxRecvWR: e.cfg.RecvDepth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: inlineMax}}
}

// prepare posts the receives. They have no memory: data arrives by WRITEs with immediate, and a
// receive only reports such a WRITE.
func (e *endpoint) prepare(q *roce.QP) error {
	for range e.cfg.RecvDepth {
		if err := q.PostRecv(&roce.RecvWR{}); err != nil {
			return err
		}
	}
	return nil
}

// hello returns the private data for the peer.
func (e *endpoint) hello() []byte {
	h := hello{bigEndian: hostBigEndian, maps: e.cfg.Maps, credits: uint16(e.cfg.RecvDepth),
		table: extent{e.tmr.Addr(), e.tmr.RKey(), halves},
		data:  extent{e.tmr.Addr() + uint64(len(e.table)), e.tmr.RKey(), uint32(len(e.early))}}
	return h.append(nil)
}

// start makes the buffers and starts the stream, after the queue pair is connected to
// a peer.
func (e *endpoint) start(q *roce.QP, peer hello) (err error) {
	e.sbuf, e.rbuf, e.maps = make([]byte, e.cfg.SendBuffer), make([]byte, e.cfg.RecvBuffer), make([]mapping, e.cfg.Maps)
	if e.smr, err = e.pd.RegMR(e.sbuf, 0); err != nil {
		return err
	}
	if e.rmr, err = e.pd.RegMR(e.rbuf, roce.LocalWrite|roce.RemoteWrite); err != nil {
		return err
	}
	e.tx = sender{buffer: e.cfg.SendBuffer, free: e.cfg.SendBuffer, wrs: e.cfg.SendDepth - ctrlReserve, ctrl: ctrlReserve, slot: 1,
		allowed: peer.credits, halves: [halves]extent{peer.data}}
	slots := int(peer.table.length)
	e.rx = receiver{buffer: e.cfg.RecvBuffer, depth: e.cfg.RecvDepth, early: len(e.early), granted: len(e.early),
		ready: e.cfg.RecvBuffer / halves, renew: uint16(e.cfg.RecvDepth / 2), slots: slots, slot: 1 % slots}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.qp, e.peer = q, peer
	e.grant() // the first half
	go e.serve()
	return nil
}

// run returns the next bytes to read that are contiguous, at most limit. The caller
// has locked the state.
func (e *endpoint) run(limit int) []byte {
	n := e.rx.next(limit)
	if left := e.rx.early; left > 0 {
		return e.early[len(e.early)-left:][:n]
	}
	return e.rbuf[e.rx.at:][:n]
}

// release frees everything except the queue pair, which its owner has closed.
func (e *endpoint) release() error {
	var errs []error
	if e.cq != nil {
		errs = append(errs, e.cq.Close()) // ends serve
		if e.qp != nil {
			<-e.served
		}
	}
	e.mu.Lock()
	ours := e.ours
	e.ours = nil
	e.mu.Unlock()
	for _, m := range ours {
		errs = append(errs, m.mr.Close())
	}
	e.leaving.Wait()
	for _, m := range []*roce.MR{e.smr, e.rmr, e.tmr} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(append(errs, e.pd.Close())...)
}

func (e *endpoint) noReads() bool  { return e.readShut || e.peerShut || e.ended }
func (e *endpoint) noWrites() bool { return e.writeShut || e.ended }

// wake wakes all goroutines that wait for a change of the state. The caller has locked the
// state.
func (e *endpoint) wake() {
	e.mayRead()
	e.mayWrite()
	e.idle.Notify()
}

// mayRead wakes goroutines that wait for data, mayWrite those that wait for room. The caller has
// locked the state.
func (e *endpoint) mayRead() {
	e.readable.Notify()
	if e.watch.readable != nil {
		e.watch.readable()
	}
}

func (e *endpoint) mayWrite() {
	e.writable.Notify()
	if e.watch.writable != nil {
		e.watch.writable()
	}
}

// end ends the stream; err is nil if the peer ended it in order. The caller
// has locked the state.
func (e *endpoint) end(err error) {
	if !e.ended {
		e.ended, e.err = true, err
		close(e.over)
	}
	e.wake()
}

// serve handles completions until the queue is closed, by Close or with the device.
// Then no work request is in progress.
func (e *endpoint) serve() {
	defer close(e.served)
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.busy = 0
		e.end(syscall.ECONNRESET)
	}()
	var wcs [32]roce.WC
	for e.cq.Wait(context.Background()) == nil {
		for n := len(wcs); n == len(wcs); { // fewer: the queue is empty
			n = e.cq.Poll(wcs[:])
			e.mu.Lock()
			for i := range wcs[:n] {
				e.complete(&wcs[i])
			}
			e.grant()
			e.mu.Unlock()
		}
	}
}

// complete handles one completion. The caller has locked the state.
func (e *endpoint) complete(wc *roce.WC) {
	recv := wc.ID == 0
	switch {
	case wc.Status != roce.StatusSuccess && recv:
		e.end(e.broken(nil))
	case recv:
		if err := e.message(wc); err != nil {
			e.end(err)
		} else if err := e.qp.PostRecv(&roce.RecvWR{}); err != nil {
			e.end(e.broken(nil))
		}
	default:
		e.finished(wc)
	}
}

// broken returns the reason for the end of a stream whose queue pair failed:
// cause if the work request has one, otherwise the loss of the peer.
func (e *endpoint) broken(cause error) error {
	if cause == nil || errors.Is(cause, roce.ErrFlushed) {
		return syscall.ECONNRESET
	}
	if errors.Is(cause, roce.ErrRetryExceeded) || errors.Is(cause, roce.ErrRNRRetryExceeded) {
		return fmt.Errorf("%w (%v)", syscall.ETIMEDOUT, cause)
	}
	return fmt.Errorf("%w (%v)", syscall.EIO, cause)
}

// finished frees the room in the ring and the work requests of a send that has completed and of the unsignaled
// ones before it.
func (e *endpoint) finished(wc *roce.WC) {
	o, n, quiet := splitID(wc.ID)
	if wc.Status != roce.StatusSuccess {
		e.lost = e.lost || o != opTable && o != opCtrl
		e.end(e.broken(wc.Err()))
		e.busy -= e.tx.takeQuiet().wrs // there is no later signaled work request for them
	}
	e.busy -= 1 + quiet.wrs
	e.tx.sent(quiet.bytes, quiet.wrs)
	switch o {
	case opTable, opCtrl:
		e.tx.ctrl++
	case opMap:
		e.tx.sent(0, 1)
	default:
		e.tx.sent(int(n), 1)
	}
	if wc.Status != roce.StatusSuccess && e.tx.wrs < e.cfg.SendDepth-ctrlReserve {
		e.lost = true // messages behind it also failed; drain may run before their completions are handled
	}
	e.mayWrite()
	if e.busy <= 0 || o == opTable || o == opCtrl {
		e.idle.Notify()
	}
}

// message handles a message of the peer. It returns an error for a violation
// of the protocol, which ends the stream.
func (e *endpoint) message(wc *roce.WC) error {
	o, value := splitImmediate(wc.Imm)
	switch o {
	case opData:
		if wc.ByteLen != value || !e.rx.arrived(value) {
			return errs.New("transfer", syscall.EPROTO, "the peer sent %d bytes in a message of %d with %d granted", wc.ByteLen, value, e.rx.granted)
		}
		if e.discard {
			e.rx.consume(e.rx.inbox.bytes)
		}
		e.mayRead()
	case opTable:
		if wc.ByteLen >= extentLen {
			e.tx.announced(parseExtent(e.table[e.tx.slot*extentLen:], binary.NativeEndian))
		}
		e.tx.allowed = uint16(value)
		e.mayWrite()
	case opMap:
		i := int(value & 0xFFFF)
		if i >= len(e.maps) {
			return errs.New("transfer", syscall.EPROTO, "the peer announced mapping %d of %d", i, len(e.maps))
		}
		e.maps[i] = parseMapping(e.table[halves*extentLen+i*mappingLen:], binary.NativeEndian)
		e.rx.read++
		e.mayWrite()
	case opCtrl:
		switch value {
		case ctrlDisconnect:
			e.end(nil)
		case ctrlShutdown:
			e.peerShut = true
			if e.told {
				e.end(nil)
			}
			e.wake()
		}
	default:
		return errs.New("transfer", syscall.EPROTO, "unknown message %d", o)
	}
	return nil
}

// grant announces new room to the peer, if there is enough of it. The caller
// has locked the state.
func (e *endpoint) grant() {
	if e.ended || e.tx.ctrl == 0 || !e.rx.due() {
		return
	}
	limit, half, offset, slot := e.rx.grant()
	wr := roce.SendWR{Opcode: roce.WriteImm}
	if half {
		size := e.cfg.RecvBuffer / halves
		entry := extent{e.rmr.Addr() + uint64(offset), e.rmr.RKey(), uint32(size)}
		wr.Inline = entry.append(make([]byte, 0, extentLen), order(e.peer.bigEndian))
		wr.RemoteAddr, wr.RKey = e.peer.table.addr+uint64(slot*extentLen), e.peer.table.key
	}
	e.control(&wr, opTable, uint32(limit))
}

// control posts a control message. The caller has locked the state, and there is
// a free work request.
func (e *endpoint) control(wr *roce.SendWR, o op, value uint32) {
	e.tx.ctrl--
	e.busy++
	wr.Imm = immediate(o, value)
	e.signaled(wr, o, value)
	if err := e.qp.PostSend(wr); err != nil {
		e.tx.ctrl++
		e.refused(wr)
	}
}

// refused ends the stream because its queue pair refuses further work requests, for instance because the device is closed. It counts
// the unsignaled messages before wr again, because wr will not have the completion that covers them. The remaining completions show
// whether the peer has these messages; serve handles them, and ends when there are no more.
func (e *endpoint) refused(wr *roce.SendWR) {
	_, _, quiet := splitID(wr.ID)
	e.tx.quiet.bytes += quiet.bytes
	e.tx.quiet.wrs += quiet.wrs
	e.busy--
	e.dead = true
	e.end(e.broken(nil))
}

// signaled makes a work request generate a completion, for itself and the unsignaled ones before it. The caller has
// locked the state.
func (e *endpoint) signaled(wr *roce.SendWR, o op, value uint32) {
	wr.Flags, wr.ID = wr.Flags|roce.Signaled, sendID(o, value, e.tx.takeQuiet())
}

// sendID returns the ID of a send: its immediate, bit 32, which receives do not have, and the number of
// unsignaled messages before it, which its completion covers.
func sendID(o op, value uint32, quiet unsignaled) uint64 {
	return uint64(quiet.wrs)<<56 | uint64(quiet.bytes)<<33 | 1<<32 | uint64(immediate(o, value))
}

func splitID(id uint64) (o op, value uint32, quiet unsignaled) {
	o, value = splitImmediate(uint32(id))
	return o, value, unsignaled{bytes: int(id >> 33 & (1<<23 - 1)), wrs: int(id >> 56)}
}

// send sends a message of n bytes, for which there is room. If data is nil, the bytes are in
// the ring already. Only one goroutine sends at a time.
func (e *endpoint) send(n int, data []byte) error {
	wr := &roce.SendWR{Opcode: roce.WriteImm, Imm: immediate(opData, uint32(n))}
	e.mu.Lock()
	at, to := e.tx.take(n)
	e.busy++
	wr.RemoteAddr, wr.RKey = to.addr, to.key
	if !e.tx.mayBeQuiet(n, e.cfg.SendDepth) {
		e.signaled(wr, opData, uint32(n))
		e.mu.Unlock()
		return e.write(wr, at, n, data)
	}
	// Post it with the state locked, so that no control message is posted before it, whose completion would cover it.
	defer e.mu.Unlock()
	wr.ID = sendID(opData, uint32(n), unsignaled{})
	e.tx.quiet.bytes += n
	e.tx.quiet.wrs++
	return e.posted(wr, e.post(wr, at, n, data))
}

// write posts a WRITE of n bytes that hold place at in the ring.
func (e *endpoint) write(wr *roce.SendWR, at, n int, data []byte) error {
	err := e.post(wr, at, n, data)
	if err == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.posted(wr, err)
}

func (e *endpoint) post(wr *roce.SendWR, at, n int, data []byte) error {
	if data != nil && n <= inlineMax {
		wr.Inline = data[:n]
	} else {
		copy(e.sbuf[at:at+n], data)
		wr.SG = []roce.SGE{e.smr.SGE(at, n)}
	}
	return e.qp.PostSend(wr)
}

// posted ends the stream if a WRITE could not be posted. The caller has locked the
// state.
func (e *endpoint) posted(wr *roce.SendWR, err error) error {
	if err != nil {
		err = e.broken(nil)
		e.refused(wr)
	}
	return err
}

// drain waits until the peer has all sent data, or the data is lost. If tell is set, drain
// first tells the peer that this side ends. It also waits on a stream that has ended, because
// data in flight is lost if the connection ends first. If the peer may have missed data, drain
// returns the reason why the stream broke.
func (e *endpoint) drain(ctx context.Context, stop <-chan struct{}, tell bool, value uint32) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	defer e.idle.Notify() // another goroutine may wait for the token, too
	for {
		tell = tell && !e.ended
		if tell && e.tx.ctrl > 0 {
			tell, e.told = false, true
			e.control(&roce.SendWR{Opcode: roce.WriteImm}, opCtrl, value)
		}
		if !tell && e.tx.quiet.wrs > 0 && e.tx.ctrl > 0 && !e.dead {
			e.flush()
		}
		if !tell && e.busy <= 0 {
			if e.lost && e.err != nil {
				return fmt.Errorf("the peer may have missed data: %w", e.err)
			}
			return nil
		}
		e.mu.Unlock()
		err := e.awaitIdle(ctx, stop)
		e.mu.Lock()
		if err != nil {
			return err
		}
	}
}

// flush sends a zero-length WRITE, whose completion covers the unsignaled messages. The WRITE needs no key, and no receive
// of the peer. The caller has locked the state, and there is a free work request.
func (e *endpoint) flush() { e.control(&roce.SendWR{Opcode: roce.Write}, opCtrl, ctrlKeepalive) }

// awaitIdle waits for a change of the state.
func (e *endpoint) awaitIdle(ctx context.Context, stop <-chan struct{}) error {
	select {
	case <-e.idle:
		return nil
	case <-stop:
		return net.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}
