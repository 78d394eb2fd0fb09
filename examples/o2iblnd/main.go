// Command o2iblnd is an LNet node in user space: it speaks the protocol of Lustre's o2iblnd over
// RoCEv2 and answers a Lustre node's pings and lnet_selftest. README.md shows how to use it.
//
//	o2iblnd -dev eth0 -addr 10.0.0.1                                    serve
//	o2iblnd -dev eth0 -addr 10.0.0.1 -ping 10.0.0.2@o2ib                ping
//	o2iblnd -dev eth0 -addr 10.0.0.1 -brw 10.0.0.2@o2ib -write          write test
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/netip"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/o2iblnd/lnd"
	"github.com/goroce/roce/examples/o2iblnd/node"
	"github.com/goroce/roce/examples/o2iblnd/selftest"
	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// options are the flags.
type options struct {
	dev, addr   string
	ping, brw   string
	write       bool
	size, count int
	concurrency int
	check       int
	trace       bool
	checksum    string
	race        string
	fmr         bool
	cfg         node.Config
}

func main() {
	var o options
	var network int
	flag.StringVar(&o.dev, "dev", "", "network interface (needs CAP_NET_RAW); without it UDP sockets at -addr are used")
	flag.StringVar(&o.addr, "addr", "", "IPv4 `address` of this node; with -dev, an address of the interface")
	flag.IntVar(&network, "net", 0, "`number` of the o2ib network")
	flag.StringVar(&o.ping, "ping", "", "ping the node with this `NID`, like 10.0.0.2@o2ib, and end")
	flag.StringVar(&o.brw, "brw", "", "run lnet_selftest's brw test against the node with this `NID`, and end")
	flag.BoolVar(&o.write, "write", false, "with -brw: write to the server; otherwise read")
	flag.IntVar(&o.size, "size", 1<<20, "with -brw: `bytes` of each request")
	flag.IntVar(&o.count, "count", 100, "with -ping and -brw: `number` of requests")
	flag.IntVar(&o.concurrency, "concurrency", 1, "with -brw: `number` of requests at once")
	flag.IntVar(&o.check, "check", 3, "with -brw: check of the data: 1 none, 2 simple, 3 full")
	flag.IntVar(&o.cfg.LND.PeerCredits, "credits", 8, "queue depth (peer_credits)")
	flag.IntVar(&o.cfg.LND.HighWater, "hiw", 0, "credits owed that cause a NOOP (peer_credits_hiw); 0: half of -credits")
	flag.DurationVar(&o.cfg.LND.Timeout, "timeout", 0, "limit for an operation; 0: 49 s")
	flag.DurationVar(&o.cfg.LND.Keepalive, "keepalive", 0, "silence before a NOOP; 0: 100 s")
	flag.StringVar(&o.checksum, "checksum", "", "checksums: signed (Linux before 6.2) or unsigned; empty: none")
	flag.StringVar(&o.race, "race", "words", "which request wins when both sides connect: words (Lustre 2.16), number (2.15) or accept (both)")
	flag.BoolVar(&o.fmr, "fmr", false, "keep registrations of memory and reuse them")
	flag.IntVar(&o.cfg.FragmentSize, "fragments", 0, "size in `bytes` of the fragments that describe memory; 0: one fragment")
	flag.BoolVar(&o.cfg.Privileged, "privileged", false, "refuse peers that connect from a port of 1024 or above")
	flag.BoolVar(&o.trace, "v", false, "print each message")
	flag.Parse()
	o.cfg.Net = uint16(network)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := o.run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

// settings completes the configuration of the node from the flags whose values are names.
func (o *options) settings() (err error) {
	if o.cfg.Addr, err = netip.ParseAddr(o.addr); err != nil || !o.cfg.Addr.Is4() {
		return fmt.Errorf("-addr %q: want the IPv4 address of this node", o.addr)
	}
	var ok bool
	if o.cfg.LND.Checksum, ok = map[string]wire.ChecksumKind{"": wire.NoChecksum, "signed": wire.SignedChecksum, "unsigned": wire.UnsignedChecksum}[o.checksum]; !ok {
		return fmt.Errorf("-checksum %q: want signed or unsigned", o.checksum)
	}
	if o.cfg.LND.Race, ok = map[string]lnd.RaceRule{"words": lnd.RaceByWords, "number": lnd.RaceByNumber, "accept": lnd.RaceAccept}[o.race]; !ok {
		return fmt.Errorf("-race %q: want words, number or accept", o.race)
	}
	if o.fmr {
		o.cfg.Pool = node.PoolConfig{Mode: node.FMR, Cache: true}
	}
	if o.trace {
		o.cfg.Trace = func(line string) { log.Print(line) }
	}
	return nil
}

func (o *options) run(ctx context.Context) error {
	if err := o.settings(); err != nil {
		return err
	}
	var dev *roce.Device
	var err error
	if o.dev != "" {
		dev, err = roce.OpenInterface(o.dev, roce.InterfaceConfig{})
	} else {
		dev, err = roce.OpenAddr(o.cfg.Addr, roce.InterfaceConfig{})
	}
	if err != nil {
		return err
	}
	defer dev.Close()
	n, err := node.Open(dev, o.cfg)
	if err != nil {
		return err
	}
	defer n.Close()
	seed := uint64(time.Now().Unix())
	switch {
	case o.ping != "":
		return o.pings(ctx, n)
	case o.brw != "":
		return o.bulk(ctx, n, selftest.NewClient(n, seed))
	}
	s := selftest.Serve(n, seed)
	defer s.Close()
	fmt.Printf("node %v answers pings and lnet_selftest\n", n.NID())
	<-ctx.Done()
	return nil
}

// pings pings a node.
func (o *options) pings(ctx context.Context, n *node.Node) error {
	to, err := wire.ParseNID(o.ping)
	for i := 0; i < o.count && err == nil; i++ {
		start := time.Now()
		var info *wire.PingInfo
		if info, err = n.Ping(ctx, to); err == nil {
			fmt.Printf("%v answers in %v:", to, time.Since(start).Round(time.Microsecond))
			for _, i := range info.Interfaces {
				fmt.Printf(" %v", i.NID)
			}
			fmt.Println()
		}
	}
	return err
}

// bulk runs the brw test.
func (o *options) bulk(ctx context.Context, n *node.Node, c *selftest.Client) error {
	to, err := wire.ParseNID(o.brw)
	if err != nil {
		return err
	}
	d := selftest.Read
	if o.write {
		d = selftest.Write
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start := time.Now()
	var left atomic.Int64
	left.Store(int64(o.count))
	var units sync.WaitGroup
	for range o.concurrency {
		units.Go(func() {
			for left.Add(-1) >= 0 && ctx.Err() == nil {
				if err := c.BRW(ctx, to, d, o.size, selftest.Check(o.check)); err != nil {
					cancel(err)
				}
			}
		})
	}
	units.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t := time.Since(start)
	fmt.Printf("%d times %v %d bytes of %v in %v: %.1f MB/s\n", o.count, d, o.size, to, t.Round(time.Millisecond), float64(o.count)*float64(o.size)/t.Seconds()/1e6)
	return nil
}
