package selftest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/roce/examples/o2iblnd/node"
	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// Errnos of Linux in replies.
const (
	errNoEntry  = 2
	errNoMemory = 12
	errBusy     = 16
	errInvalid  = 22
	errBadMsg   = 74
	errTransfer = 5
)

// Service answers the requests of lnet_selftest on a node.
type Service struct {
	node    *node.Node
	client  *Client
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
	count   counters

	targets []*node.Target

	mu      sync.Mutex
	session *session // nil: none
	serving int      // requests that are being served
	closed  bool
}

// counters are the values that a console asks for.
type counters struct {
	brwErrors, pingErrors atomic.Uint32
	sent, received        atomic.Uint32
	bulkIn, bulkOut       atomic.Uint64 // bytes
}

// sessionTimeout is the number of seconds without a request after which a session ends. The node announces it to the
// console, but this service keeps a session until another one replaces it.
const sessionTimeout = 100

// requestTimeout bounds the transfers of one request.
const requestTimeout = 64 * time.Second

// Serve offers the services. seed makes match bits differ from those of earlier runs.
func Serve(n *node.Node, seed uint64) *Service {
	s := &Service{node: n, client: NewClient(n, seed)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	for portal, services := range map[uint32][2]uint64{FrameworkPortal: {serviceDebug, serviceJoin}, RequestPortal: {serviceBRW, servicePing}} {
		for bits := services[0]; bits <= services[1]; bits++ {
			t := s.target(portal, bits)
			s.targets = append(s.targets, t)
			n.Attach(t)
		}
	}
	return s
}

// Close stops the service and the running tests.
func (s *Service) Close() {
	for _, t := range s.targets {
		s.node.Detach(t)
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.running.Wait()
}

// target returns the target for the requests of one service. Each request gets its own buffer.
func (s *Service) target(portal uint32, bits uint64) *node.Target {
	var mu sync.Mutex
	buffers := map[wire.LNetHeader][][]byte{}
	return &node.Target{Portal: portal, MatchBits: bits,
		Put: func(h *wire.LNetHeader) []byte {
			mu.Lock()
			defer mu.Unlock()
			b := make([]byte, MessageLen)
			buffers[*h] = append(buffers[*h], b)
			return b
		},
		Done: func(h *wire.LNetHeader, n int, err error) {
			mu.Lock()
			b := buffers[*h][0]
			if buffers[*h] = buffers[*h][1:]; len(buffers[*h]) == 0 {
				delete(buffers, *h)
			}
			mu.Unlock()
			if m, bad := Decode(b[:n]); err == nil && bad == nil {
				s.start(h.Src, m)
			}
		}}
}

// maxRequests is how many requests are served at once. Each may have 1 MiB of data. Further requests are
// dropped, as in a kernel without a free buffer: the requester times out.
const maxRequests = 2048

func (s *Service) start(from wire.NID, m *Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.serving >= maxRequests {
		return
	}
	s.serving++
	s.running.Go(func() {
		s.handle(from, m)
		s.mu.Lock()
		s.serving--
		s.mu.Unlock()
	})
}

// handlers has the function for each type of request. It fills in the reply and returns its status, 0 or an errno.
var handlers = map[Type]func(s *Service, ctx context.Context, from wire.NID, m, reply *Message) (status int32){
	MakeSession:   (*Service).makeSession,
	Join:          (*Service).makeSession,
	RemoveSession: (*Service).removeSession,
	Test:          (*Service).addTest,
	Batch:         (*Service).batch,
	Stat:          (*Service).stat,
	Debug:         (*Service).debug,
	BRW:           (*Service).brw,
	PingTest:      (*Service).pingTest,
}

func (s *Service) handle(from wire.NID, m *Message) {
	handler, ok := handlers[m.Type]
	if !ok {
		return
	}
	s.count.received.Add(1)
	ctx, cancel := context.WithTimeout(s.ctx, requestTimeout)
	defer cancel()
	reply := New(m.Type+1, m.Features)
	reply.Order = m.Order
	reply.setStatus(handler(s, ctx, from, m, reply))
	s.node.Put(ctx, from, DataPortal, m.replyBits(), reply.Encode(), false) // the requester may be gone
	s.count.sent.Add(1)
}

// brw moves the bulk data of a request: a PUT to the client for a read, a GET from it for a write.
func (s *Service) brw(ctx context.Context, from wire.NID, m, _ *Message) int32 {
	d, size, check := Direction(m.u32(16)), m.u32(20), Check(m.u32(24))
	if d != Read && d != Write || size == 0 || size > wire.MaxPayload || check < CheckNone || check > CheckFull {
		return errInvalid
	}
	data := make([]byte, size)
	if d == Read {
		check.Fill(data)
		if n, err := s.node.Put(ctx, from, DataPortal, m.bulkBits(), data, false); err != nil || n != len(data) {
			s.count.brwErrors.Add(1)
			return errTransfer
		}
		s.count.bulkOut.Add(uint64(size))
		return 0
	}
	n, err := s.node.Get(ctx, from, DataPortal, m.bulkBits(), data)
	if err != nil || n != len(data) {
		s.count.brwErrors.Add(1)
		return errTransfer
	}
	s.count.bulkIn.Add(uint64(size))
	if check.Verify(data) != nil {
		s.count.brwErrors.Add(1)
		return errBadMsg
	}
	return 0
}

func (s *Service) pingTest(_ context.Context, _ wire.NID, m, reply *Message) int32 {
	reply.put32(4, pingMagic)
	reply.put32(8, m.u32(12))
	if m.u32(8) != pingMagic {
		return errInvalid
	}
	return 0
}
