package conform

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link/pcap"
	"github.com/goroce/roce/script"
	"github.com/goroce/roce/script/library"
)

// OpenWire opens the wire on which scripts are played. Scripts do not use the tester's device.
type OpenWire func(ctx context.Context, quiet time.Duration) (*script.Wire, error)

// scripts returns the scripts that can be played with the kind of peer in c.
func scripts(c *Config) (list []*script.Script) {
	for _, s := range append(library.All(), c.Scripts...) {
		program, _, _ := strings.Cut(s.Peer, " ")
		client := strings.Contains(s.Peer+" ", " -c ") || strings.HasSuffix(s.Peer, " client")
		switch {
		case c.Peer == PeerServe && s.Controlled():
		case c.Peer == PeerRping && program == "rping" && !client:
		case c.Peer == PeerPerftest && strings.HasPrefix(program, "ib_") && !client:
		default:
			continue
		}
		list = append(list, s)
	}
	return list
}

// scriptSteps returns a step for each script. port is the port of perftest's program for the first script.
func scriptSteps(c *Config, port uint16) (list []step) {
	if c.Wire == nil {
		return nil
	}
	for i, s := range scripts(c) {
		st := step{section: sectionScripts, name: "script/" + s.Name, about: s.Title, script: s}
		switch c.Peer {
		case PeerRping:
			st.port, st.server = c.Port, (&rpingPeer{cfg: c, mtu: max(c.MTU, 1024)}).server()
		case PeerPerftest:
			st.port = port + uint16(i)
			st.server = strings.Join(append([]string{s.Peer, "-p", strconv.Itoa(int(st.port))}, c.PeerArgs...), " ")
		}
		list = append(list, st)
	}
	return list
}

// script runs a step that plays a script. Package verify does not judge its packets, because the script breaks rules on purpose. The
// script itself says how the peer has to react.
func (r *runner) script(ctx context.Context, st *step, res *StepResult) error {
	ctx, stop := context.WithTimeoutCause(ctx, r.cfg.Limit, &LimitError{r.cfg.Limit})
	defer stop()
	res.seen = situations{}
	kind, err := r.kind()
	if err != nil {
		return err
	}
	if st.script.Kills(kind) {
		res.unknown(fmt.Sprintf("a peer of the kind %v does not survive it", kind))
		return nil
	}
	o := script.Options{Peer: kind, Port: st.port, TCP: r.cfg.Host, Timeout: r.cfg.Limit / 3, Silence: true}
	if st.script.Controlled() {
		c, err := dialControl(ctx, r.cfg.control(), 0)
		if err != nil {
			return res.fail(err)
		}
		defer c.close()
		o.Target = &farTarget{c}
	}
	w, err := r.cfg.Wire(ctx, r.cfg.Quiet)
	if err != nil {
		res.Status, res.Why = Unknown, append(res.Why, err.Error())
		return &DeviceError{err}
	}
	driver := w.Port.Info().Driver
	if r.card.Driver == "" {
		r.card.Driver = driver
	}
	if why := r.unplayable(st.script, driver); why != "" {
		w.Port.Close()
		res.unknown(why)
		return nil
	}
	rec := newRecorder()
	if w.Port, err = pcap.Wrap(w.Port, nil, pcap.Options{Seen: rec.seen}); err != nil {
		return &DeviceError{err}
	}
	err = patiently(ctx, r.cfg.Wait, func() error { return r.play(ctx, st, w, o, res) })
	w.Port.Close()
	records, _ := rec.all()
	res.Packets = len(records)
	if res.Status == Fail && err == nil && notified(records) {
		res.Status, res.Why = Unknown, []string{"the peer answers a congestion mark with a CNP, which the script does not expect"}
	}
	if r.cfg.Captures != "" {
		var serr error
		if res.Capture, serr = save(r.cfg.Captures, st.name, records); serr != nil {
			return &DeviceError{serr}
		}
	}
	return err
}

// headerFields are fields of the IP and UDP headers. With a driver that uses UDP sockets, the kernel sets them.
var headerFields = []string{"src=", "sport=", "ttl=", "tos=", "udpsum="}

// portMTU has the scripts that work only with one path MTU of the peer's port, in bytes.
var portMTU = map[string]int{"unreliable/ud-longer-than-the-mtu": 1024}

// unplayable returns why a script cannot be played with this peer and driver, "" if it can.
func (r *runner) unplayable(s *script.Script, driver string) (why string) {
	if n := portMTU[s.Name]; n != 0 && n != r.card.Peer.MTU {
		return fmt.Sprintf("it needs a port with the path MTU %d", n)
	}
	s.Walk(func(st *script.Step) {
		for word := range strings.FieldsSeq(st.Text) {
			for _, f := range headerFields {
				if driver == "udp" && strings.HasPrefix(word, f) {
					why = "the driver udp cannot send with such headers (--link raw can): " + word
				}
			}
		}
	})
	return why
}

// quiet is the default of Config.Quiet: how long a script waits for further responses of a peer that it controls.
const quiet = 40 * time.Millisecond

// notified reports whether the peer sent a CNP.
func notified(records []pcap.Record) bool {
	for p := range fromPeer(records) {
		if p.Frame.Op == bth.CNP {
			return true
		}
	}
	return false
}

// nobodyListens is part of the error of a script if no program listens on the peer's host.
const nobodyListens = "reason 8 (invalid service ID)"

// play plays a script once.
func (r *runner) play(ctx context.Context, st *step, w *script.Wire, o script.Options, res *StepResult) error {
	played := script.Run(ctx, st.script, w, o)
	var text strings.Builder
	played.WriteText(&text)
	m, mismatch := errors.AsType[*script.Mismatch](played.Err)
	if mismatch && strings.Contains(m.Got, nobodyListens) {
		res.unknown("nobody listens at the peer: the program " + st.script.Peer + " has ended, or does not take several connections")
		return nil
	}
	switch {
	case played.Err == nil && played.Skipped != "":
		res.unknown(played.Skipped)
	case played.Err == nil:
		if departs, why := st.script.Departs(o.Peer); departs {
			res.Script = fmt.Sprintf("a known departure of %v: %s", o.Peer, strings.TrimSpace(why))
		}
	case mismatch:
		res.Status, res.Why, res.Script = Fail, append(res.Why, played.Err.Error()), strings.TrimSpace(text.String())
	default:
		// The script could not be played to its end, for example because no program listens. That is not a failure of the peer, unless
		// the peer is gone or hangs.
		if _, gone := errors.AsType[*GoneError](played.Err); gone || errors.Is(played.Err, ctx.Err()) && ctx.Err() != nil {
			res.Status = Fail
		} else {
			res.Status = Unknown
		}
		res.Why = append(res.Why, "it could not be played to its end: "+played.Err.Error())
		return played.Err
	}
	return nil
}

// kind returns the kind of the peer for scripts.
func (r *runner) kind() (script.Peer, error) {
	if r.cfg.Kind != "" {
		return script.ParsePeer(r.cfg.Kind)
	}
	if strings.HasPrefix(r.card.Peer.Software, ownSoftware) {
		return script.ParsePeer("us")
	}
	return script.ParsePeer("adapter")
}

// ownSoftware is the beginning of Identity.Software if the peer runs this stack.
const ownSoftware = "rocectl "
