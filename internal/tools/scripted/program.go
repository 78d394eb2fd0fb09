package scripted

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/perftest"
	"github.com/goroce/roce/internal/tools/rping"
	"github.com/goroce/roce/internal/tools/usage"
)

// Program is the program that the peer of a script runs.
type Program struct {
	Client bool
	TCP    bool // the ends exchange their addresses over TCP, not by the connection manager

	words []string
	run   func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error
}

// ParseProgram parses the command line of a program, like "rping -s", "rping -c -C 1" or "ib_write_bw -s 4096 -n 5". For perftest, the
// word "client" says that the program is a client; Command replaces it by the address of the server.
func ParseProgram(text string) (p Program, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return p, usage.Errorf("the script does not say which program its peer runs (peer \"…\")")
	}
	p.words = words
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
		p.Client = flags["-c"]
		p.run = runner(p.Client, rping.Client, rping.Server, c)
		return p, nil
	}
	for _, t := range perftest.Tests {
		if "ib_"+t.Name != words[0] {
			continue
		}
		c := t.Config()
		c.MTU = roce.MTU(bth.MTU1024)
		for flag, option := range map[string]*int{"-s": &c.Size, "-n": &c.Iters, "-r": &c.RxDepth, "-t": &c.TxDepth} {
			if n := numbers[flag]; n > 0 {
				*option = n
			}
		}
		p.Client, p.TCP = flags["client"], true
		p.run = runner(p.Client, perftest.Client, perftest.Server, c)
		return p, nil
	}
	return p, usage.Errorf("the peer's program %q is none of rping and perftest's", words[0])
}

// runner returns a function that runs one end of a program with the options c.
func runner[C, R any](isClient bool, client func(context.Context, *roce.Device, string, C) (R, error),
	server func(context.Context, *roce.Device, string, C, func(netip.AddrPort)) (R, error), c C) func(context.Context, *roce.Device, string, func(netip.AddrPort)) error {
	return func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) (err error) {
		if isClient {
			_, err = client(ctx, d, addr, c)
		} else {
			_, err = server(ctx, d, addr, c, listening)
		}
		return err
	}
}

// Command returns the command line of the program on a host. own is the address of the host, and peer that of the script.
func (p *Program) Command(own, peer string, port uint16) []string {
	words := slices.DeleteFunc(slices.Clone(p.words), func(w string) bool { return w == "client" })
	words = append(words, "-p", strconv.Itoa(int(port)))
	if p.TCP {
		words = append(words, "-F", "-x", "1", "-m", "1024") // the GID of the IPv4 address
		if p.Client {
			words = append(words, peer)
		}
		return words
	}
	if p.Client {
		return append(words, "-a", peer, "-v")
	}
	return append(words, "-a", own, "-v")
}
