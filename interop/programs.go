//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/internal/tools/nics"
	"github.com/goroce/roce/interop/proc"
)

// programs is our side with rdma-core's programs, as Debian has built them, on our libibverbs.so.1
// and librdmacm.so.1.
type programs struct {
	*ours
	libs  string            // the directory of the libraries
	files map[string]string // programs that are not installed, by their paths in the guest
}

func (p *programs) label() string { return "program on roce" }
func (p *programs) linux() bool   { return true } // its output is that of rdma-core's programs

// start passes the program the same device flags that rocectl gets.
func (p *programs) start(ctx context.Context, c command, capture string, _ time.Duration) (*proc.Proc, error) {
	flags := append([]string{"--dev", p.dev, "--link", p.link, "--capture", capture}, p.faultFlags()...)
	argv := []string{"env", "LD_LIBRARY_PATH=" + p.libs, "ROCE_FLAGS=" + strings.Join(flags, " "), "stdbuf", "-oL", cmp.Or(p.files[c.tool.program(c.role)], c.tool.program(c.role))}
	return proc.Start(ctx, p.ns.Argv(append(argv, c.linux()...)...)...)
}

// listening waits for the line that the server prints, for its TCP port, or until its process has
// the service of that port at the shared address. Devices of xdp are not shared, so their services
// are not listed.
func (p *programs) listening(ctx context.Context, s *proc.Proc, t *tool, port int) error {
	ctx, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	switch {
	case t.up != nil:
		return s.WaitFor(ctx, t.up)
	case p.link == "xdp" && t.begins != nil:
		return s.WaitFor(ctx, t.begins)
	case t.oob:
		return p.until(ctx, s, func() (bool, error) {
			out, err := proc.Run(ctx, p.ns.Argv("ss", "-Hltn", "sport", "=", ":"+strconv.Itoa(port))...)
			return strings.TrimSpace(out) != "", err
		})
	}
	return p.until(ctx, s, func() (bool, error) {
		out, err := proc.Run(ctx, p.ns.Argv(p.binary, "nic", "--json")...)
		return err == nil && hasService(out, port), err
	})
}

// until polls there until it returns true, while the program runs.
func (p *programs) until(ctx context.Context, s *proc.Proc, there func() (bool, error)) error {
	for {
		if ok, err := there(); ok || err != nil {
			return err
		}
		short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		e, err := s.Wait(short)
		stop()
		switch {
		case err == nil:
			return fmt.Errorf("%s: ended before it could be connected to: %v", s.Line, e)
		case ctx.Err() != nil:
			return fmt.Errorf("%s: it cannot be connected to: %w", s.Line, context.Cause(ctx))
		}
	}
}

// hasService reports whether rocectl nic --json has listed a service of rdma_cm at a port.
func hasService(list string, port int) bool {
	for d := json.NewDecoder(strings.NewReader(list)); ; {
		var a nics.Address
		if d.Decode(&a) != nil {
			return false
		}
		for _, process := range a.Processes {
			if process.Does != nil && slices.ContainsFunc(process.Does.Services, func(s string) bool { return strings.HasSuffix(s, " "+strconv.Itoa(port)) }) {
				return true
			}
		}
	}
}

// buildPrograms builds the libraries for rdma-core's programs.
func (o *options) buildPrograms(ctx context.Context) error {
	o.libs = filepath.Join(cmp.Or(o.root, "."), "bin", "cverbs")
	return proc.Build(ctx, "libibverbs.so.1 and librdmacm.so.1", filepath.Join(o.root, "scripts", "cverbs"))
}
