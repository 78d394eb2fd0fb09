package scripted

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/hubdev"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/script"
)

// The addresses of a peer in this process and of the script.
var (
	selfAddr   = netip.MustParseAddr("10.0.0.1")
	scriptAddr = netip.MustParseAddr("10.0.0.2")
	loopback   = netip.AddrFrom4([4]byte{127, 0, 0, 1})
)

// selfQuiet is script.Wire.Quiet for a NIC in this process.
const selfQuiet = 2 * time.Millisecond

// RunSelf plays a script against a NIC in this process. The script controls the NIC, or the NIC runs the program that the script needs.
func RunSelf(ctx context.Context, s *script.Script, o script.Options) *script.Result {
	return runSelf(ctx, s, o, roce.RecoverDefault)
}

// runSelf is RunSelf with a recovery mode for the NIC.
func runSelf(ctx context.Context, s *script.Script, o script.Options, recovery roce.Recovery) *script.Result {
	fail := func(err error) *script.Result { return &script.Result{Name: s.Name, Err: err} }
	hub := mem.NewHub(mem.Config{MTU: 1500})
	dev, err := hubdev.Open(hub, selfAddr, roce.Config{Options: roce.Options{SleepAtOnce: true, Recovery: recovery}}, nil)
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
	p, err := ParseProgram(s.Peer)
	if err != nil {
		return fail(err)
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	defer func() {
		stop()
		<-ended
	}()
	if p.Client {
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
	if p.TCP {
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
