package hostilepeer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/qp"
)

// The addresses of the network.
var (
	victimAddr  = netip.MustParseAddr("10.0.0.1")
	honestAddr  = netip.MustParseAddr("10.0.0.2")
	hostileAddr = netip.MustParseAddr("10.0.0.66")
)

const (
	pmtu     = 1024
	qkey     = 0x11111111
	areaSize = 8 << 10
	guard    = 4 << 10 // bytes around each area that no packet may change
	recvSize = 2 << 10
	recvs    = 16 // receives that are posted at each queue
	service  = "10.0.0.1:7471"
)

// area is registered memory between guards.
type area struct {
	name string
	all  []byte
	buf  []byte
	mr   *roce.MR
	keep bool // its key does not allow writing
	was  []byte
}

// newArea registers memory.
func newArea(name string, pd *roce.PD, n int, access roce.Access) (*area, error) {
	a := &area{name: name, all: make([]byte, guard+n+guard)}
	for i := range a.all {
		a.all[i] = byte(i*7 + 3)
	}
	a.buf = a.all[guard : guard+n : guard+n]
	a.keep = access&roce.RemoteWrite == 0
	a.was = bytes.Clone(a.all)
	var err error
	a.mr, err = pd.RegMR(a.buf, access)
	return a, err
}

// check compares the bytes that no packet may change.
func (a *area) check() error {
	end := guard + len(a.buf)
	if !bytes.Equal(a.all[:guard], a.was[:guard]) || !bytes.Equal(a.all[end:], a.was[end:]) {
		return fmt.Errorf("memory around %s was written", a.name)
	}
	if a.keep && !bytes.Equal(a.buf, a.was[guard:end]) {
		return fmt.Errorf("%s was written, which its key does not allow", a.name)
	}
	return nil
}

// end is a queue pair of the device whose peer is hostile.
type end struct {
	name   string
	q      *roce.QP
	typ    roce.QPType
	access roce.Access
	srq    *roce.SRQ                // from which it receives; nil: from its own queue
	post   func(*roce.RecvWR) error // nil: nothing to receive with
	posted int
	queued int // sends
	mute   bool

	// The state that the hostile peer knows: the PSN that the device expects, and the PSN that it
	// has sent.
	expect bth.PSN
	sent   bth.PSN
	inside bth.OpcodeFlags // of the message in progress, 0: none
	left   int             // remaining bytes of that message
}

// rig is the device under test, its peers, and their memory.
type rig struct {
	form    Form
	gate    *gate
	victim  *roce.Device
	honest  *roce.Device
	cq      *roce.CQ
	pd      *roce.PD
	srq     *roce.SRQ
	xsrq    *roce.SRQ
	ends    []*end
	ud      *end
	areas   []*area
	open    *area // for writing
	reading *area
	local   *area
	recv    *area
	secret  *area // of the honest connection
	near    *connection
	far     *connection
	stop    context.CancelFunc
	wcs     [64]roce.WC
	rounds  int
	fatal   int // queue pairs that the hostile peer has brought to ERR
	taken   int // receives that messages have taken
}

// connection is an end of the honest connection.
type connection struct {
	conn *roce.Conn
	cq   *roce.CQ
	area *area
}

// newRig makes a rig.
func newRig(f Form) (r *rig, err error) {
	r = &rig{form: f}
	hub := mem.NewHub(mem.Config{MTU: 1500})
	port, err := hub.Port("victim", roce.DerivedMAC(victimAddr))
	if err != nil {
		return r, err
	}
	r.gate = newGate(port, f)
	seed := uint64(0x9E3779B97F4A7C15)
	rnd := func() uint64 { // the same numbers in each run
		seed ^= seed << 13
		seed ^= seed >> 7
		seed ^= seed << 17
		return seed
	}
	if r.victim, err = roce.Open(roce.Config{Ports: []link.Port{r.gate}, Addrs: []netip.Addr{victimAddr},
		Options: roce.Options{SleepAtOnce: true, Rand: rnd}}); err != nil {
		return r, err
	}
	second, err := hub.Port("honest", roce.DerivedMAC(honestAddr))
	if err != nil {
		return r, err
	}
	if r.honest, err = roce.Open(roce.Config{Ports: []link.Port{second}, Addrs: []netip.Addr{honestAddr},
		Options: roce.Options{SleepAtOnce: true, Rand: rnd}}); err != nil {
		return r, err
	}
	if err := r.connectHonest(); err != nil {
		return r, err
	}
	return r, r.makeEnds()
}

// close closes everything that was opened.
func (r *rig) close() (err error) {
	if r.stop != nil {
		r.stop()
	}
	for _, d := range []*roce.Device{r.honest, r.victim} {
		if d != nil {
			err = errors.Join(err, d.Close())
		}
	}
	return err
}

// connectHonest makes the honest connection, by the connection manager.
func (r *rig) connectHonest() error {
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	l, err := r.victim.Listen(ctx, service, roce.ListenConfig{Backlog: 16})
	if err != nil {
		return err
	}
	r.near, r.far = &connection{}, &connection{}
	config := func(c *connection, d *roce.Device) (pd *roce.PD, q roce.QPConfig, err error) {
		if c.cq, err = d.CreateCQ(255); err != nil {
			return nil, q, err
		}
		pd = d.AllocPD()
		c.area, err = newArea("the honest connection's memory", pd, areaSize, roce.LocalWrite|roce.RemoteWrite|roce.RemoteRead|roce.RemoteAtomic)
		return pd, roce.QPConfig{SendCQ: c.cq}, err
	}
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(ctx)
		if err == nil {
			var a roce.AcceptConfig
			if a.PD, a.QPConfig, err = config(r.near, r.victim); err == nil {
				r.near.conn, err = req.Accept(ctx, a)
			}
		}
		accepted <- err
	}()
	var d roce.DialConfig
	if d.PD, d.QPConfig, err = config(r.far, r.honest); err != nil {
		return err
	}
	if r.far.conn, err = r.honest.Dial(ctx, service, d); err != nil {
		return err
	}
	if err := <-accepted; err != nil {
		return err
	}
	r.secret = r.near.area
	go answer(ctx, l)
	return nil
}

// answer handles the requests of the listener: it rejects some, and accepts
// others, a few at a time, each for some time.
func answer(ctx context.Context, l *roce.Listener) {
	places := make(chan struct{}, 8)
	for n := 0; ; n++ {
		req, err := l.Accept(ctx)
		if err != nil {
			return
		}
		if n%3 == 0 {
			req.Reject(nil)
			continue
		}
		select {
		case places <- struct{}{}:
		default:
			req.Reject(nil)
			continue
		}
		go func() {
			defer func() { <-places }()
			ctx, stop := context.WithTimeout(ctx, 100*time.Millisecond)
			defer stop()
			c, err := req.Accept(ctx, roce.AcceptConfig{})
			if err != nil {
				return
			}
			select {
			case <-c.Done():
			case <-ctx.Done():
			}
			c.Close()
		}()
	}
}

// makeEnds makes the queue pairs that belong to the hostile peer.
func (r *rig) makeEnds() (err error) {
	v := r.victim
	if r.cq, err = v.CreateCQ(4095); err != nil {
		return err
	}
	r.pd = v.AllocPD()
	const remote = roce.RemoteWrite | roce.RemoteRead | roce.RemoteAtomic
	for _, a := range []struct {
		at     **area
		name   string
		size   int
		access roce.Access
	}{
		{&r.open, "memory for the peer", areaSize, roce.LocalWrite | remote},
		{&r.reading, "memory for reading", areaSize, roce.LocalWrite | roce.RemoteRead},
		{&r.local, "memory that is local", areaSize, roce.LocalWrite},
		{&r.recv, "memory of receives", recvs * recvSize, roce.LocalWrite | roce.RemoteWrite},
	} {
		if *a.at, err = newArea(a.name, r.pd, a.size, a.access); err != nil {
			return err
		}
		r.areas = append(r.areas, *a.at)
	}
	r.areas = append(r.areas, r.secret)
	caps := roce.Caps{MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: 2, MaxRecvSGE: 2}
	if r.srq, err = r.pd.CreateSRQ(roce.SRQConfig{MaxWR: 31}); err != nil {
		return err
	}
	domain, err := v.OpenXRCD(roce.XRCDConfig{})
	if err != nil {
		return err
	}
	if r.xsrq, err = r.pd.CreateSRQ(roce.SRQConfig{MaxWR: 31, XRCD: domain, CQ: r.cq}); err != nil {
		return err
	}
	for _, e := range []struct {
		end
		config roce.QPConfig
	}{
		{end{name: "RC", typ: roce.RC, access: remote | roce.FlushGlobal}, roce.QPConfig{MaskedAtomics: true, MaxAtomicArg: 32}},
		{end{name: "RC with an SRQ", typ: roce.RC, access: remote, srq: r.srq}, roce.QPConfig{SRQ: r.srq}},
		{end{name: "RC without receives", typ: roce.RC, access: roce.RemoteRead, mute: true}, roce.QPConfig{}},
		{end{name: "UC", typ: roce.UC, access: remote}, roce.QPConfig{}},
		{end{name: "UD", typ: roce.UD}, roce.QPConfig{}},
		{end{name: "XRC", typ: roce.XRCRecv, access: remote, srq: r.xsrq}, roce.QPConfig{}},
		{end{name: "RC with congestion control", typ: roce.RC, access: remote}, roce.QPConfig{Congestion: &roce.DCQCN{LineRate: 10e9}}},
	} {
		c := e.config
		c.SendCQ, c.Caps, c.Type, c.UserData = r.cq, caps, e.typ, &e.end
		if e.typ == roce.XRCRecv {
			e.q, err = domain.CreateQP(roce.QPConfig{UserData: &e.end})
		} else {
			e.q, err = r.pd.CreateQP(c)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		switch {
		case e.srq != nil:
			e.post = e.srq.PostRecv
		case !e.mute:
			e.post = e.q.PostRecv
		}
		r.ends = append(r.ends, &e.end)
		if err := r.connect(&e.end); err != nil {
			return err
		}
	}
	r.ud = r.ends[4]
	return nil
}

// connect brings a queue pair from any state to RTS.
func (r *rig) connect(e *end) error {
	if e.q.State() != qp.Reset {
		if err := e.q.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	e.queued = 0
	if e.srq == nil {
		e.posted = 0 // the reset has removed them
	}
	if err := e.q.Init(e.access, qkey); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	if err := r.repost(e); err != nil {
		return err
	}
	var err error
	if e.typ == roce.UD {
		err = e.q.Ready(1)
	} else {
		err = e.q.Connect(context.Background(), roce.Peer{AHAttr: roce.AHAttr{DGID: bth.GIDFrom(hostileAddr)}, QPN: 0x660000, PSN: e.expect,
			MTU: bth.MTU1024, Timeout: 10, RetryCnt: 3, RNRRetry: 3, MinRNRTimer: 1, RdAtomic: 4}, e.sent)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}

// repost keeps receives posted.
func (r *rig) repost(e *end) error {
	if e.post == nil {
		return nil
	}
	for ; e.posted < recvs; e.posted++ {
		at := e.posted * recvSize
		if err := e.post(&roce.RecvWR{ID: uint64(e.posted), SG: []roce.SGE{r.recv.mr.SGE(at, recvSize)}}); err != nil {
			return fmt.Errorf("%s: posting a receive: %w", e.name, err)
		}
	}
	return nil
}

// drain takes the completions of the hostile peer's queue pairs. It returns how many
// receives messages have completed.
func (r *rig) drain() (received int, err error) {
	for {
		n := r.cq.Poll(r.wcs[:])
		for i := range r.wcs[:n] {
			wc := &r.wcs[i]
			e := r.endOf(wc.QPN)
			if e == nil {
				return received, fmt.Errorf("a completion for queue pair %v, which does not exist", wc.QPN)
			}
			if !wc.Opcode.Recv() {
				e.queued--
				continue
			}
			e.posted--
			if wc.Status == cq.Success {
				r.taken++
				if e != r.ud {
					received++
				}
			}
		}
		if n == 0 {
			// Wait, so that the device continues its work, which otherwise waits for the next poll.
			r.cq.Wait(over)
			return received, nil
		}
	}
}

// over is a context that has ended.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (r *rig) endOf(n bth.QPN) *end {
	for _, e := range r.ends {
		if e.q.Num() == n {
			return e
		}
	}
	return nil
}

// mend prepares the queue pairs for the next batch: it posts receives and requests, and
// connects queue pairs that are in ERR again.
func (r *rig) mend() error {
	for _, e := range r.ends {
		a, _ := e.q.Query()
		e.expect, e.sent = a.RQPSN, a.SQPSN
		if a.State == qp.Err || a.State == qp.SQE {
			r.fatal++
			e.inside = 0
			if err := r.connect(e); err != nil {
				return err
			}
			continue
		}
		if err := r.repost(e); err != nil {
			return err
		}
	}
	return nil
}

// ask posts work requests, so that the hostile peer can forge answers to them.
func (r *rig) ask(e *end, pick int) error {
	if e.typ != roce.RC || e.queued >= 8 {
		return nil
	}
	wr := roce.SendWR{ID: 1, Flags: roce.Signaled, SG: []roce.SGE{r.open.mr.SGE(0, 64)}, RemoteAddr: 0x1000, RKey: 0x1234}
	switch pick % 4 {
	case 0:
		wr.Opcode = roce.Send
	case 1:
		wr.Opcode, wr.SG[0].Length = roce.Write, 3000
	case 2:
		wr.Opcode, wr.SG[0].Length = roce.Read, 3000
	case 3:
		wr.Opcode, wr.SG[0].Length = roce.FetchAdd, 8
	}
	if err := e.q.PostSend(&wr); err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	e.queued++
	return nil
}
