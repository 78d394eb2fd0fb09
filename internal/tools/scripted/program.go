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
		p.run = func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
			var err error
			if p.Client {
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
		p.Client, p.TCP = flags["client"], true
		p.run = func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
			var err error
			if p.Client {
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
