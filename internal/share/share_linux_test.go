package share

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/link"
)

// fakeMedium is a Medium that only has two descriptors for each slot.
type fakeMedium struct {
	mu       sync.Mutex
	opened   int
	services []Service
	keeper   Slot
	silenced int
	fail     error
	fails    int // how often; 0: always
}

func (d *fakeMedium) Open() (files []int, notes []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		if d.fails--; d.fails == 0 {
			d.fail = nil
		}
		return nil, nil, cmp.Or(d.fail, error(syscall.EADDRINUSE))
	}
	d.opened++
	for range 2 * Slots {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, fd)
	}
	return files, []string{"a note"}, nil
}

func (d *fakeMedium) Steer(own []int, services []Service, keeper Slot) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.services, d.keeper = services, keeper
	return nil
}

func (d *fakeMedium) Silence(sockets []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silenced += len(sockets)
}

func (d *fakeMedium) Sockets() int { return 2 }
func (d *fakeMedium) Hear() bool   { return false }

func (d *fakeMedium) steered() ([]Service, Slot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.services), d.keeper
}

// key returns the key of an address that no other test uses.
func key(t *testing.T) string { return fmt.Sprintf("test %d %s", os.Getpid(), t.Name()) }

func join(t *testing.T, k string, n int, m Medium) *Place {
	t.Helper()
	p, err := Join(Config{Key: k, Slots: n, Medium: m})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// kill closes the sockets with the names of a Place, which does not clean up, as if its process had
// been killed. The caller closes the line to the keeper.
func kill(t *testing.T, p *Place) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	closeAll(p.pass)
	p.pass = nil
	t.Cleanup(func() {
		close(p.done)
		p.running.Wait()
		p.free()
	})
}

// eventually waits until ok is true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for late := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("%s does not happen", what)
		}
	}
}

// Every process has its own slots, and descriptors of the same files.
func TestJoin(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	taken := map[Slot]bool{}
	var inode uint64
	for i := range 8 {
		p := join(t, k, 1+i%3, d)
		for _, s := range p.Slots() {
			if taken[s] {
				t.Fatalf("slot %d is taken twice", s)
			}
			taken[s] = true
		}
		var st unix.Stat_t
		if err := unix.Fstat(p.board.fd, &st); err != nil || inode != 0 && st.Ino != inode {
			t.Errorf("place %d: another board, %v", i, err)
		}
		inode = st.Ino
		if len(p.Sockets(0)) != 2 || len(p.Notes()) != 1 {
			t.Errorf("place %d: %d sockets, notes %q", i, len(p.Sockets(0)), p.Notes())
		}
	}
	if d.opened != 1 {
		t.Errorf("the address was opened %d times", d.opened)
	}
}

// Each slot has one owner. Join fails with ENOSPC when no slot is free. A slot that was given back
// can be taken again.
func TestExhaustion(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	first := join(t, k, Slots-1, d)
	second := join(t, k, 1, d)
	_, err := Join(Config{Key: k, Slots: 1, Medium: d})
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "0 of 64 are free") {
		t.Errorf("Join without a free slot: %v", err)
	}
	s := second.Slots()[0]
	second.Close()
	eventually(t, "the slot is free", func() bool { return !first.board.owned(s) })
	if third := join(t, k, 1, d); third.Slots()[0] != s {
		t.Errorf("slot %d, only %d is free", third.Slots()[0], s)
	}
}

// A slot that was freed just now is not taken while there are others.
func TestRest(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	join(t, k, 1, d)
	seen := map[Slot]bool{}
	for range Slots - 1 {
		p := join(t, k, 1, d)
		if seen[p.Slots()[0]] {
			t.Fatalf("slot %d does not rest", p.Slots()[0])
		}
		seen[p.Slots()[0]] = true
		p.Close()
	}
}

// A service has one listener. The error for another process names the listener; after Drop, the
// other process can claim the service.
func TestClaim(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	a, b := join(t, k, 1, d), join(t, k, 1, d)
	const id = 0x0000000001061234
	for _, p := range []*Place{b, b} {
		if err := p.Claim(id); err != nil {
			t.Fatal(err)
		}
	}
	err := a.Claim(id)
	if want := fmt.Sprintf("process %d listens", os.Getpid()); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), want) {
		t.Errorf("a second listener: %v, want %q", err, want)
	}
	if services, _ := d.steered(); !slices.Equal(services, []Service{{id, b.Slots()[0]}}) {
		t.Errorf("steered to %v", services)
	}
	b.Drop(id)
	if err := a.Claim(id); err == nil {
		t.Error("a service that was claimed twice is free after it was dropped once")
	}
	b.Drop(id)
	eventually(t, "the service is free", func() bool { return a.Claim(id) == nil })
	if services, _ := d.steered(); !slices.Equal(services, []Service{{id, a.Slots()[0]}}) {
		t.Errorf("steered to %v", services)
	}
}

// When the keeper leaves another process takes over; slots and services stay as they were.
func TestElection(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	var places []*Place
	for i := range 6 {
		p := join(t, k, 1, d)
		if err := p.Claim(uint64(100 + i)); err != nil {
			t.Fatal(err)
		}
		places = append(places, p)
	}
	for len(places) > 1 {
		gone := places[0].Slots()[0]
		if err := places[0].Close(); err != nil {
			t.Fatal(err)
		}
		places = places[1:]
		late := join(t, k, 1, d)
		if late.Slots()[0] == gone {
			t.Errorf("slot %d does not rest", gone)
		}
		late.Close()
		err := places[len(places)-1].Claim(100 + uint64(6-len(places)))
		if len(places) > 1 && !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("a service of a process that lives: %v", err)
		}
		if err := places[0].Claim(99); err != nil {
			t.Errorf("a new service: %v", err)
		}
		places[0].Drop(99)
		eventually(t, "the others are known", func() bool {
			services, _ := d.steered()
			return len(services) >= len(places)
		})
	}
}

// Packets pass from one process to another with their envelope, segment and origin.
func TestPass(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	a, b := join(t, k, 1, d), join(t, k, 2, d)
	type got struct {
		Packet
		data string
		env  frame.Envelope
	}
	packets := make(chan got, 100)
	if err := b.Receive(func(p *Packet) {
		g := got{Packet: *p, data: string(p.Frame.Data)}
		if p.Frame.Env != nil {
			g.env = *p.Frame.Env
		}
		packets <- g
	}); err != nil {
		t.Fatal(err)
	}
	out := a.NewOut()
	env := frame.Envelope{Src: bth.GID{1, 2, 3}, Dst: bth.GID{15: 9}, SrcPort: 4791, TrafficClass: 3, HopLimit: 64, FlowLabel: 0xABCDE, ID: 77, VLAN: 5, SrcMAC: frame.MAC{6, 5: 7}, IDSeen: true, IDMerged: true}
	env.Seal()
	out.Add(b.Slots()[0], &link.Frame{Data: []byte("first")}, false)
	out.Add(b.Slots()[0], &link.Frame{Data: []byte("second"), Env: &env, Segment: 5}, true)
	out.Add(b.Slots()[1], &link.Frame{Data: []byte("third")}, false)
	out.Flush()
	bySlot := map[Slot][]got{}
	for range 3 {
		g := <-packets
		bySlot[g.Slot] = append(bySlot[g.Slot], g)
	}
	first, second := bySlot[b.Slots()[0]], bySlot[b.Slots()[1]]
	if len(first) != 2 || first[0].data != "first" || first[0].Network || first[1].data != "second" || !first[1].Network || first[1].env != env || first[1].Frame.Segment != 5 {
		t.Errorf("first slot: %+v", first)
	}
	if len(second) != 1 || second[0].data != "third" {
		t.Errorf("second slot: %+v", second)
	}
	b.Close()
	eventually(t, "a packet to nobody is dropped", func() bool { // when the keeper has closed the socket, too
		out.Add(b.Slots()[0], &link.Frame{Data: []byte("late")}, false)
		out.Flush()
		return a.Stats().Dropped == 1
	})
}

// Packets wait for a process that is busy, in order, and not for ever.
func TestPassBusy(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	a, b := join(t, k, 1, d), join(t, k, 1, d)
	if err := a.Receive(func(*Packet) {}); err != nil {
		t.Fatal(err)
	}
	out := a.NewOut()
	const n = 30
	for i := range n {
		out.Add(b.Slots()[0], &link.Frame{Data: []byte{byte(i)}}, false)
		out.Flush()
	}
	packets := make(chan byte, n)
	if err := b.Receive(func(p *Packet) { packets <- p.Frame.Data[0] }); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if got := <-packets; got != byte(i) {
			t.Fatalf("packet %d comes as number %d", got, i)
		}
	}
	c := join(t, k, 1, d) // does not receive
	for range 2 * maxParcels {
		out.Add(c.Slots()[0], &link.Frame{Data: []byte("x")}, false)
		out.Flush()
	}
	eventually(t, "what waits too long is dropped", func() bool {
		s := a.Stats()
		return s.Dropped > maxParcels && s.Sent+s.Dropped == n+2*maxParcels
	})
}

// The keeper gets the connections of a dead process once.
func TestOrphans(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	a, b := join(t, k, 1, d), join(t, k, 1, d)
	told := make(chan []Conn, 4)
	a.OnOrphans(func(list []Conn) { told <- list })
	keep := Conn{1, 2, 3, bth.GID{4}, bth.GID{5}}
	b.Connected(keep)
	h := b.Connected(Conn{LocalID: 6})
	b.Disconnected(&h)
	b.Disconnected(&h)
	kill(t, b)
	b.line.Close()
	if got := <-told; !slices.Equal(got, []Conn{keep}) {
		t.Errorf("told %+v", got)
	}
}

// A medium that cannot be opened leaves nothing behind.
func TestOpenFails(t *testing.T) {
	k := key(t)
	for range 3 {
		if _, err := Join(Config{Key: k, Slots: 1, Medium: &fakeMedium{fail: syscall.EADDRINUSE}}); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%v", err)
		}
	}
	join(t, k, 1, new(fakeMedium))
}

// Join waits for an address whose last process is leaving.
func TestLeaving(t *testing.T) {
	k := key(t)
	join(t, k, 1, &fakeMedium{fail: syscall.EADDRINUSE, fails: 3})
	k += " again"
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, slotName(k, 5)); err != nil { // a process that has a slot, and is no keeper
		t.Fatal(err)
	}
	d := new(fakeMedium)
	joined := make(chan error)
	go func() {
		p, err := Join(Config{Key: k, Slots: 1, Medium: d})
		if err == nil {
			err = p.Close()
		}
		joined <- err
	}()
	select {
	case err := <-joined:
		t.Errorf("joined while a process was there: %v", err)
	case <-time.After(2 * leaveTime):
	}
	unix.Close(fd)
	if err := <-joined; err != nil {
		t.Error(err)
	}
}

// All processes that join at the same time get slots.
func TestTogether(t *testing.T) {
	d := new(fakeMedium)
	for round := range 20 {
		k := fmt.Sprintf("%s %d", key(t), round)
		var wg sync.WaitGroup
		var mu sync.Mutex
		taken := map[Slot]int{}
		var mine []*Place
		for range 16 {
			wg.Go(func() {
				p, err := Join(Config{Key: k, Slots: 1, Medium: d})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if taken[p.Slots()[0]]++; taken[p.Slots()[0]] > 1 {
					t.Errorf("slot %d twice", p.Slots()[0])
				}
				mine = append(mine, p)
				mu.Unlock()
			})
		}
		wg.Wait()
		for _, p := range mine {
			wg.Go(func() { p.Close() })
		}
		wg.Wait()
	}
	if d.opened != 20 {
		t.Errorf("20 addresses were opened %d times", d.opened)
	}
}

// A program may close its listeners and connections after the device.
func TestAfterClose(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	for range 2 { // the keeper, and another one
		p := join(t, k, 1, d)
		if err := p.Claim(1); err != nil && !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
		h := p.Connected(Conn{LocalID: 1})
		defer func() {
			p.Drop(1)
			p.Disconnected(&h)
			if h := p.Connected(Conn{LocalID: 2}); h != (Handle{}) {
				t.Error("a closed Place has recorded a connection")
			}
			if err := p.Claim(2); !errors.Is(err, errs.ErrClosed) {
				t.Errorf("Claim on a closed Place: %v", err)
			}
		}()
		defer p.Close()
	}
}

// A process that joins while there is no keeper does not open the address again if others use it.
func TestComesBetweenKeepers(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(fd, slotName(k, 5)); err != nil {
		t.Fatal(err)
	}
	joined := make(chan error)
	go func() {
		p, err := Join(Config{Key: k, Slots: 1, Medium: d})
		if err == nil {
			defer p.Close()
		}
		joined <- err
	}()
	select {
	case err := <-joined:
		t.Errorf("joined without a keeper: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if d.mu.Lock(); d.opened != 0 {
		t.Errorf("opened %d times", d.opened)
	}
	d.mu.Unlock()
	unix.Close(fd)
	if err := <-joined; err != nil {
		t.Error(err)
	}
}
