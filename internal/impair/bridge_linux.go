package impair

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/gso"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/mono"
)

// Run forwards frames between two interfaces until ctx is done or one of them is removed. The report is
// valid also with an error.
func Run(ctx context.Context, c Config) (Report, error) {
	if c.Buffer == 0 {
		c.Buffer = 64 << 20
	}
	if c.Note == nil {
		c.Note = func(string) {}
	}
	c.Faults.Track = c.Faults.Track || c.Trace != nil
	ends, err := openEnds(c)
	if err != nil {
		return Report{}, err
	}
	defer ends[0].close()
	defer ends[1].close()
	br := &bridge{cfg: c, start: time.Now(), ends: ends}
	if br.engine, err = fault.NewEngine(c.Faults, 0); err != nil {
		return Report{}, err
	}
	if br.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return Report{}, fmt.Errorf("impair: eventfd: %w", err)
	}
	defer unix.Close(br.wake)
	for i, e := range br.ends {
		if err := e.begin(); err != nil {
			return Report{}, err
		}
		if err := br.look(i); err != nil {
			return Report{}, err
		}
	}
	waked := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		unix.Write(br.wake, binary.NativeEndian.AppendUint64(nil, 1))
		close(waked)
	})
	defer func() {
		if !stop() {
			<-waked // the deferred functions run in reverse order: br.wake is still open
		}
	}()
	if c.Ready != nil {
		c.Ready()
	}
	err = br.run(ctx)
	return br.report(), err
}

// end is one of the two places between which a bridge forwards: a packet socket, or one side of an
// interface that is redirected.
type end interface {
	// begin starts to receive frames.
	begin() error
	// receive reads a batch of frames; n is 0 if there are none. changed says that the interface went
	// down or up.
	receive() (n int, changed bool, err error)
	// message returns frame i of the last batch. ok is false if it is damaged.
	message(i int) (f received, ok bool)
	// send queues a frame that holds this number of packets. data must not change until flush. sendCopy queues a copy of data.
	send(data []byte, head *gso.VnetHeader, packets int)
	sendCopy(data []byte)
	flush()
	// up reports whether the interface is up. The error says that it was removed.
	up() (bool, error)
	// counters returns the counters of the end. The bridge changes them.
	counters() *Side
	// settle adds the frames that the kernel has dropped to the counters.
	settle()
	// descriptor is readable when there are frames.
	descriptor() int
	close()
}

// openEnds opens both ends.
func openEnds(c Config) ([2]end, error) {
	if c.B == (Interface{}) {
		return redirect(c.A, c.Buffer)
	}
	if err := unfit(c.A, c.B); err != nil {
		return [2]end{}, err
	}
	a, err := open(c.A, c.Buffer, c.Trace != nil)
	if err != nil {
		return [2]end{}, err
	}
	b, err := open(c.B, c.Buffer, c.Trace != nil)
	if err != nil {
		a.close()
		return [2]end{}, err
	}
	if a.mtu != b.mtu {
		c.Note(fmt.Sprintf("the MTU of %s is %d, that of %s %d: larger frames than fit do not pass", a.of, a.mtu, b.of, b.mtu))
	}
	return [2]end{a, b}, nil
}

// bridge forwards frames. It belongs to one goroutine.
type bridge struct {
	cfg    Config
	start  time.Time
	engine *fault.Engine
	ends   [2]end // A and B
	down   [2]bool
	wake   int

	looked   mono.Time               // when watch last checked both interfaces
	tag      uint64                  // of the last frame
	segments [gso.MaxSegments][]byte // buffers for the segments of a super-packet

	// These fields are for the trace.
	before   []byte             // a frame as it arrived
	arrivals map[uint64]arrival // frames that the engine holds, by tag
}

// arrival describes a frame that has arrived, for the record that the trace writes when the frame leaves.
type arrival struct {
	seq    uint64
	read   time.Time     // when the bridge read it; monotonic, because the clock of the kernel's time stamps may be set meanwhile
	waited time.Duration // from the kernel's time stamp to read
	faults fault.Faults
	copies int // how many copies the engine holds
}

// now is the time of the engine.
func (b *bridge) now() mono.Time { return mono.Time(time.Since(b.start)) }

// run forwards until ctx is done, or an interface is gone.
func (b *bridge) run(ctx context.Context) error {
	b.arrivals = make(map[uint64]arrival)
	for ctx.Err() == nil {
		if err := b.watch(); err != nil {
			return err
		}
		busy := false
		for i, s := range b.ends {
			n, changed, err := s.receive()
			if err == nil && changed {
				err = b.look(i)
			}
			if err != nil {
				return err
			}
			for m := range n {
				b.forward(i, m)
			}
			busy = busy || n > 0
		}
		now := b.now()
		for i := range b.ends {
			b.release(now, i)
			b.ends[1-i].flush()
		}
		if busy {
			continue
		}
		if err := b.flushTrace(); err != nil {
			return err
		}
		if err := b.sleep(); err != nil {
			return err
		}
	}
	return nil
}

// watchInterval is how often the bridge checks whether an interface was removed or is up again: the kernel does not tell that to a
// packet socket. It also limits the time between two checks while frames arrive without a pause.
const watchInterval = 200 * time.Millisecond

// watch checks the interfaces and flushes the trace, at most once in each watchInterval.
func (b *bridge) watch() error {
	now := b.now()
	if now < b.looked.Add(watchInterval) {
		return nil
	}
	b.looked = now
	for i := range b.ends {
		if err := b.look(i); err != nil {
			return err
		}
	}
	return b.flushTrace()
}

func (b *bridge) flushTrace() error {
	if b.cfg.Trace == nil {
		return nil
	}
	if err := b.cfg.Trace.flush(); err != nil {
		return fmt.Errorf("impair: the trace: %w", err)
	}
	return nil
}

// look checks whether an interface is up, and reports a change to Config.Note.
func (b *bridge) look(i int) error {
	up, err := b.ends[i].up()
	if err != nil {
		return err
	}
	if b.down[i] != !up {
		b.down[i] = !up
		b.cfg.Note(fmt.Sprintf("%s is %s", b.ends[i].counters().Interface, map[bool]string{true: "up", false: "down"}[up]))
	}
	return nil
}

// sleep waits until a frame arrives, the engine has to release a frame, ctx is done, or watchInterval has passed.
func (b *bridge) sleep() error {
	d := watchInterval
	if due, now := b.engine.NextTimeout(), b.now(); due <= now {
		d = 0
	} else if due != mono.Never {
		d = min(d, due.Sub(now))
	}
	p := []unix.PollFd{{Fd: int32(b.ends[0].descriptor()), Events: unix.POLLIN}, {Fd: int32(b.ends[1].descriptor()), Events: unix.POLLIN}, {Fd: int32(b.wake), Events: unix.POLLIN}}
	ts := unix.NsecToTimespec(int64(d))
	if _, err := unix.Ppoll(p, &ts, nil); err != nil && err != unix.EINTR {
		return fmt.Errorf("impair: poll: %w", err)
	}
	return nil
}

// forward handles frame m of the last batch of end i.
func (b *bridge) forward(i, m int) {
	s, to := b.ends[i], b.ends[1-i]
	count := s.counters()
	f, ok := s.message(m)
	if !ok {
		count.Unusable++
		return
	}
	if b.cfg.Trace != nil && f.at.IsZero() {
		f.at = time.Now()
	}
	h, roce := gso.Look(f.data)
	if roce && f.head.Type&^gso.ECN == gso.UDP4 && f.head.Size > 0 {
		if n := (len(f.data) - h.Body + int(f.head.Size) - 1) / int(f.head.Size); n <= len(b.segments) {
			b.super(i, &f, h, n)
			return
		}
	}
	count.Received++
	if roce {
		count.RoCE++
		if f.head.Flags&gso.NeedsCsum != 0 && f.head.Type == gso.None {
			complete(f.data, &f.head)
		}
	}
	now := b.now()
	if v := b.decide(now, i, f.data, f.at, roce); v.Pass {
		to.send(f.data, &f.head, 1)
	}
	b.release(now, i)
}

// super handles a super-packet of count packets. It forwards the super-packet as a whole if the engine changes, holds and drops none
// of its packets. Otherwise it forwards the packets one by one.
func (b *bridge) super(i int, f *received, h gso.Headers, count int) {
	to := b.ends[1-i]
	b.ends[i].counters().Received += uint64(count)
	b.ends[i].counters().RoCE += uint64(count)
	size, now, whole := int(f.head.Size), b.now(), true
	for k := range count {
		n := h.Body + min(size, len(f.data)-h.Body-k*size)
		part := append(b.segments[k][:0], f.data[:n]...) // allocates n bytes; Segment overwrites them
		gso.Segment(part, f.data, h, size, k)
		b.segments[k] = part
		v := b.decide(now, i, part, f.at, true)
		if whole && (!v.Pass || v.Faults&^fault.Of(fault.Pass) != 0 || b.engine.NextTimeout() <= now) {
			whole = false
			for _, earlier := range b.segments[:k] {
				to.sendCopy(earlier)
			}
		}
		if whole {
			continue
		}
		if v.Pass {
			to.sendCopy(part)
		}
		b.release(now, i)
	}
	if whole {
		to.send(f.data, &f.head, count)
	}
}

// complete computes the checksum that the sender has left to its adapter (checksum offload).
func complete(data []byte, h *gso.VnetHeader) {
	start, at := int(h.CsumStart), int(h.CsumStart)+int(h.CsumOffset)
	if at+2 > len(data) {
		return
	}
	sum := ^frame.Fold16(frame.Sum16(data[start:]))
	if sum == 0 {
		sum = 0xFFFF // zero means none
	}
	binary.BigEndian.PutUint16(data[at:], sum)
	*h = gso.VnetHeader{}
}

// dirs has the directions of frames that arrive at A and at B.
var dirs = [2]fault.Direction{fault.Tx, fault.Rx}

// decide asks the engine about a frame that arrived at end i, and writes the trace.
func (b *bridge) decide(now mono.Time, i int, data []byte, at time.Time, roce bool) fault.Verdict {
	b.tag++
	t := b.cfg.Trace
	// The engine does not see other packets than RoCE. Random faults would change them, too, and a copy would lose the offloads
	// that the kernel has left to do (checksum, segmentation).
	v := fault.Verdict{Pass: true, Rule: -1}
	if t != nil {
		b.before = append(b.before[:0], data...) // the engine changes the frame in place
	}
	if roce {
		v = b.engine.Handle(now, dirs[i], data, b.tag)
	}
	if t == nil {
		return v
	}
	seq := t.arrived(i, at, b.before, &v, roce)
	read := time.Now()
	waited := max(read.Sub(at), 0)
	if v.Pass {
		b.left(i, data, arrival{seq: seq, read: read, waited: waited, faults: v.Faults &^ (fault.Of(fault.Dup) | fault.Of(fault.Pass))})
	}
	if v.Held > 0 {
		b.arrivals[b.tag] = arrival{seq, read, waited, v.Faults, v.Held}
	}
	return v
}

// left writes the departure of a frame that arrived at end i to the trace.
func (b *bridge) left(i int, data []byte, a arrival) {
	now, why := time.Now(), ""
	if a.faults != 0 {
		why = a.faults.String()
	}
	b.cfg.Trace.left(1-i, now, data, a.seq, why, a.waited+now.Sub(a.read))
}

// release queues the frames from end i whose time has come.
func (b *bridge) release(now mono.Time, i int) {
	for r, ok := b.engine.Next(now, dirs[i]); ok; r, ok = b.engine.Next(now, dirs[i]) {
		b.ends[1-i].sendCopy(r.Data)
		if b.cfg.Trace == nil {
			continue
		}
		a := b.arrivals[r.Tag]
		b.left(i, r.Data, a)
		if a.copies--; a.copies > 0 {
			b.arrivals[r.Tag] = a
		} else {
			delete(b.arrivals, r.Tag)
		}
	}
}

// report returns the counters so far.
func (b *bridge) report() Report {
	lost := b.engine.Forgotten()
	r := Report{Rules: b.engine.RuleCounters(), Connections: b.engine.Connections(), Elapsed: time.Since(b.start), ForgottenConnections: lost.Connections, ForgottenIterations: lost.Iterations}
	for _, e := range b.ends {
		e.settle()
	}
	r.A, r.B = *b.ends[0].counters(), *b.ends[1].counters()
	r.AToB, r.BToA = b.engine.Counters()
	return r
}
