package selftest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// session holds the batches that a console has set up on this node.
type session struct {
	id      sessionID
	name    []byte
	begun   time.Time
	batches map[uint64]*testBatch
}

// testBatch is a batch: tests that run together.
type testBatch struct {
	tests  []*test
	stop   context.CancelFunc
	active atomic.Int32 // test units that run
}

// test is a test in which this node is a client.
type test struct {
	service   uint32
	loops     uint32 // requests of each unit; all ones: no limit
	concur    uint32
	direction Direction
	check     Check
	size      int
	to        []wire.NID
	active    atomic.Int32
}

// makeSession makes a session, or joins the present one. With force it replaces another session.
func (s *Service) makeSession(_ context.Context, _ wire.NID, m, reply *Message) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := m.session(8)
	force := m.Type == MakeSession && m.u32(24) != 0
	if s.session != nil && s.session.id != id && !force {
		reply.setSession(s.session.id)
		reply.copyBytes(24, s.session.name)
		return errBusy
	}
	if s.session == nil || s.session.id != id {
		if m.Type == Join {
			return errNoEntry
		}
		s.endSession()
		s.session = &session{id: id, name: m.bytes(28, nameLen), begun: time.Now(), batches: map[uint64]*testBatch{}}
	}
	reply.setSession(id)
	reply.put32(20, sessionTimeout)
	return 0
}

// endSession stops all batches and ends the session. The caller holds mu.
func (s *Service) endSession() {
	if s.session == nil {
		return
	}
	for _, b := range s.session.batches {
		b.end()
	}
	s.session = nil
}

func (s *Service) removeSession(_ context.Context, _ wire.NID, m, reply *Message) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	reply.setSession(noSession)
	if s.session == nil || s.session.id != m.session(8) {
		return errBusy
	}
	s.endSession()
	return 0
}

// in returns the session of a request, nil if the node is not in it, and puts the ID of the node's session into the reply.
func (s *Service) in(m, reply *Message, at int) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == nil || s.session.id != m.session(at) {
		reply.setSession(noSession)
		return nil
	}
	reply.setSession(s.session.id)
	return s.session
}

// batchOf returns a batch of a session. With create it makes a missing batch.
func (s *Service) batchOf(x *session, id uint64, create bool) *testBatch {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := x.batches[id]
	if b == nil && create && len(x.batches) < maxBatches {
		b = new(testBatch)
		x.batches[id] = b
	}
	return b
}

// Limits for the requests of a console.
const (
	maxBatches     = 64
	maxTests       = 64
	maxDests       = pageSize / destLen
	maxConcurrency = 1792
	maxUnits       = 4 * maxConcurrency // running units, each with a buffer
	destLen        = 12                 // a NID and a process ID
)

// addTest adds a test to a batch. If this node is a client, it GETs the list of servers from the
// console. A server has nothing to prepare.
func (s *Service) addTest(ctx context.Context, from wire.NID, m, reply *Message) int32 {
	x := s.in(m, reply, 16)
	if x == nil {
		return errInvalid
	}
	isClient, dests := m.Body[52] != 0, m.u32(54)
	t := &test{service: m.u32(40), loops: m.u32(44), concur: m.u32(48)}
	switch {
	case t.service == serviceBRW && m.Features&FeatureBulkLen != 0:
		t.direction, t.check, t.size = Direction(m.u16(58)), Check(m.u16(60)), int(m.u32(62))
	case t.service == serviceBRW:
		t.direction, t.size, t.check = Direction(m.u32(58)), int(min(m.u32(62), wire.MaxPayload))*pageSize, Check(m.u32(66))
	case t.service != servicePing:
		return errNoEntry
	}
	if t.service == serviceBRW && (t.direction != Read && t.direction != Write || t.size <= 0 || t.size > wire.MaxPayload || t.check < CheckNone || t.check > CheckFull) {
		return errInvalid
	}
	b := s.batchOf(x, m.u64(32), true)
	if b == nil {
		return errBusy
	}
	if !isClient {
		return 0
	}
	if dests == 0 || dests > maxDests || t.concur == 0 || t.concur > maxConcurrency || t.loops == 0 {
		return errInvalid
	}
	list := make([]byte, dests*destLen)
	if m.Features&FeatureBulkLen == 0 {
		list = make([]byte, pageSize)
	}
	if n, err := s.node.Get(ctx, from, DataPortal, m.bulkBits(), list); err != nil || n < int(dests)*destLen {
		return errTransfer
	}
	for i := range int(dests) {
		t.to = append(t.to, wire.NID(m.order().Uint64(list[i*destLen:])))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(b.tests) == maxTests {
		return errBusy
	}
	b.tests = append(b.tests, t)
	return 0
}

// Operations on a batch.
const (
	runBatch   = 1
	stopBatch  = 2
	queryBatch = 3
)

func (s *Service) batch(_ context.Context, _ wire.NID, m, reply *Message) int32 {
	x := s.in(m, reply, 8)
	if x == nil {
		return errInvalid
	}
	b := s.batchOf(x, m.u64(24), false)
	if b == nil {
		return errNoEntry
	}
	switch index := int(m.u32(36)); m.u32(32) {
	case runBatch:
		return s.run(x, b)
	case stopBatch:
		s.mu.Lock()
		defer s.mu.Unlock()
		b.end()
	case queryBatch:
		reply.put32(20, uint32(b.activeTests(s, index)))
	default:
		return errInvalid
	}
	return 0
}

// activeTests returns the number of running tests, or with index 1 or more, the number of running units of that test.
func (b *testBatch) activeTests(s *Service, index int) (n int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range b.tests {
		switch active := t.active.Load(); {
		case index == i+1:
			return active
		case index == 0 && active > 0:
			n++
		}
	}
	return n
}

func (b *testBatch) end() {
	if b.stop != nil {
		b.stop()
		b.stop = nil
	}
}

// run starts all tests of a batch. Each test has concur units for each server.
func (s *Service) run(x *session, b *testBatch) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != x || s.closed { // another console has ended the session, so no console could stop the batch
		return errInvalid
	}
	units := 0
	for _, t := range b.tests {
		units += len(t.to) * int(t.concur)
	}
	for _, other := range x.batches {
		units += int(other.active.Load())
	}
	if units > maxUnits && b.active.Load() == 0 {
		return errNoMemory
	}
	if b.active.Load() > 0 {
		return 0 // it is running already
	}
	b.end()
	ctx, stop := context.WithCancel(s.ctx)
	b.stop = stop
	for _, t := range b.tests {
		for _, to := range t.to {
			for range t.concur {
				b.active.Add(1)
				t.active.Add(1)
				s.running.Go(func() {
					defer b.active.Add(-1)
					defer t.active.Add(-1)
					s.unit(ctx, t, to)
				})
			}
		}
	}
	return 0
}

// unit sends the requests of one unit of a test, one after the other.
func (s *Service) unit(ctx context.Context, t *test, to wire.NID) {
	for i := uint32(0); ctx.Err() == nil && (i < t.loops || t.loops == 1<<32-1); i++ {
		one, cancel := context.WithTimeout(ctx, requestTimeout)
		var err error
		failures := &s.count.brwErrors
		if t.service == servicePing {
			failures = &s.count.pingErrors
			err = s.client.Ping(one, to, i)
		} else {
			err = s.client.BRW(one, to, t.direction, t.size, t.check)
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			failures.Add(1)
			pause := time.NewTimer(time.Second) // an unreachable server must not keep this node busy
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
			pause.Stop()
		}
	}
}

// stat answers with the counters of this service. The LNet counters in the reply count the same messages and bulk data.
func (s *Service) stat(_ context.Context, _ wire.NID, m, reply *Message) int32 {
	x := s.in(m, reply, 8)
	if x == nil {
		return errInvalid
	}
	c := &s.count
	reply.put32(20, uint32(time.Since(x.begun).Milliseconds()))
	s.mu.Lock()
	var active uint32
	for _, b := range x.batches {
		if b.active.Load() > 0 {
			active++
		}
	}
	s.mu.Unlock()
	for at, v := range map[int]uint32{24: active, 32: c.brwErrors.Load(), 36: c.pingErrors.Load(), 44: c.sent.Load(), 48: c.received.Load(),
		88: c.sent.Load(), 92: c.received.Load()} {
		reply.put32(at, v)
	}
	for at, v := range map[int]uint64{60: c.bulkIn.Load(), 68: c.bulkOut.Load(), 104: c.bulkOut.Load(), 112: c.bulkIn.Load()} {
		reply.put64(at, v)
	}
	return 0
}

// debug answers with the state of the session.
func (s *Service) debug(_ context.Context, _ wire.NID, _, reply *Message) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == nil {
		reply.setSession(noSession)
		return errNoEntry
	}
	reply.setSession(s.session.id)
	reply.put32(20, sessionTimeout)
	reply.put32(24, uint32(len(s.session.batches)))
	reply.copyBytes(28, s.session.name)
	return 0
}
