package scripted

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/hubdev"
	"github.com/goroce/roce/internal/tools/perftest"
	"github.com/goroce/roce/internal/tools/rping"
	"github.com/goroce/roce/internal/tools/usage"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/script"
)

// The addresses of a peer in this process and of the script.
var (
	selfAddr   = netip.MustParseAddr("10.0.0.1")
	scriptAddr = netip.MustParseAddr("10.0.0.2")
	loopback   = netip.AddrFrom4([4]byte{127, 0, 0, 1})
)

// selfQuiet is how long a NIC in this process must be silent.
const selfQuiet = 2 * time.Millisecond

// RunSelf plays a script against a NIC in this process: one that the script controls, or one on which the program runs that
// the script wants.
func RunSelf(ctx context.Context, s *script.Script, o script.Options) *script.Result {
	fail := func(err error) *script.Result { return &script.Result{Name: s.Name, Err: err} }
	hub := mem.NewHub(mem.Config{MTU: 1500})
	dev, err := hubdev.Open(hub, selfAddr, roce.Config{Options: roce.Options{SleepAtOnce: true}}, nil)
	if err != nil {
		return fail(err)
	}
	defer dev.Close()
	port, err := hub.Port("script", roce.DerivedMAC(scriptAddr))
	if err != nil {
		return fail(err)
	}
	defer port.Close()
	w := &script.Wire{Port: port, Own: bth.GIDFrom(scriptAddr), Peer: bth.GIDFrom(selfAddr), MAC: roce.DerivedMAC(selfAddr), Quiet: selfQuiet}
	o.Peer = script.Peer{Kind: "us"}
	o.TCP = loopback
	if s.Controlled() {
		o.Target = &target{dev}
		return script.Run(ctx, s, w, o)
	}
	p, err := parseProgram(s.Peer)
	if err != nil {
		return fail(err)
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	defer func() {
		stop()
		<-ended
	}()
	if p.client {
		at := make(chan netip.AddrPort, 1)
		o.Listening = func(a netip.AddrPort) { at <- a }
		go func() {
			select {
			case a := <-at:
				ended <- p.run(ctx, dev, a.String(), nil)
			case <-ctx.Done():
				ended <- ctx.Err()
			}
		}()
		return script.Run(ctx, s, w, o)
	}
	listening := make(chan netip.AddrPort, 1)
	host := selfAddr
	if p.tcp {
		host = loopback
	}
	go func() {
		ended <- p.run(ctx, dev, netip.AddrPortFrom(host, 0).String(), func(a netip.AddrPort) { listening <- a })
	}()
	select {
	case a := <-listening:
		o.Port = a.Port()
	case err := <-ended:
		ended <- err
		return fail(fmt.Errorf("the peer's program ends before a script can connect: %w", err))
	}
	return script.Run(ctx, s, w, o)
}

// program is what the peer of a script runs.
type program struct {
	client bool
	tcp    bool
	run    func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error
}

// parseProgram reads the line of a program: rping -s, rping -c -C 1, ib_write_bw -s 4096 -n 5.
func parseProgram(text string) (p program, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return p, usage.Errorf("the script does not say which program its peer runs (peer \"…\")")
	}
	numbers := map[string]int{}
	flags := map[string]bool{}
	for i := 1; i < len(words); i++ {
		if i+1 < len(words) {
			if n, err := strconv.Atoi(words[i+1]); err == nil {
				numbers[words[i]] = n
				i++
				continue
			}
		}
		flags[words[i]] = true
	}
	if words[0] == "rping" {
		c := rping.Config{Count: numbers["-C"], Size: numbers["-S"]}
		p.client = flags["-c"]
		p.run = func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
			var err error
			if p.client {
				_, err = rping.Client(ctx, d, addr, c)
			} else {
				_, err = rping.Server(ctx, d, addr, c, listening)
			}
			return err
		}
		return p, nil
	}
	for _, t := range perftest.Tests {
		if "ib_"+t.Name != words[0] {
			continue
		}
		c := t.Config()
		c.MTU = roce.MTU(bth.MTU1024)
		if n := numbers["-s"]; n > 0 {
			c.Size = n
		}
		if n := numbers["-n"]; n > 0 {
			c.Iters = n
		}
		if n := numbers["-r"]; n > 0 {
			c.RxDepth = n
		}
		if n := numbers["-t"]; n > 0 {
			c.TxDepth = n
		}
		p.client, p.tcp = flags["client"], true
		p.run = func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
			var err error
			if p.client {
				_, err = perftest.Client(ctx, d, addr, c)
			} else {
				_, err = perftest.Server(ctx, d, addr, c, listening)
			}
			return err
		}
		return p, nil
	}
	return p, usage.Errorf("the peer's program %q is none of rping and perftest's", words[0])
}
