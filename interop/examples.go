//go:build linux

package main

import (
	"context"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce/interop/proc"
)

// examples are example programs from manuals. They are compiled against the distribution's headers
// and libraries, and the same binary runs in the guest and on our libraries. The other examples of
// the manual, such as mckey, are rdma-core's own, or need features that rxe does not have.
var examples = []*tool{
	{
		name: "RDMA_RC_example", source: "RDMA_RC_example.c", inGo: "verbs-rc -d {self}", oob: true,
		linuxArgs: []string{"-g", "1"}, // the GID of the IPv4 address
		args:      [2]string{"-p {port}", "-p {port} {peer}"},
		good: [2]*regexp.Regexp{
			regexp.MustCompile(`Contents of server buffer: 'RDMA write operation'\n\ntest result is 0`),
			regexp.MustCompile(`Message is: 'SEND operation      '\n(?s:.*)Contents of server's buffer: 'RDMA read operation '\n(?s:.*)test result is 0`),
		},
	},
	{
		name: "srq", source: "srq.c", inGo: "srq -dev {self}",
		args: [2]string{"-s -a {self} -p {port}", "-a {peer} -p {port}"},
		good: [2]*regexp.Regexp{regexp.MustCompile(`send count: 2\n`), regexp.MustCompile(`send count: 100, .*\nrecv count: 2\n`)},
	},
	{
		name: "mc", source: "mc.c", inGo: "multicast", // its completion queue has two entries
		up:   regexp.MustCompile(`waiting for messages`),
		args: [2]string{"-m 239.77.1.4 -b {self} -c 2", "-s -m 239.77.1.4 -b {self} -c 2"},
		good: [2]*regexp.Regexp{regexp.MustCompile(`received message 2\n`), regexp.MustCompile(`sent message 2\n`)},
	},
	{
		name: "flow", source: "flow.c", inGo: "rdma-flow -dev {self}",
		args: [2]string{"-s {self} {port}", "-c {peer} {port}"},
		good: [2]*regexp.Regexp{
			regexp.MustCompile(`the region is as the client wrote it\n(?s:.*)disconnected`),
			regexp.MustCompile(`what was read is what was written\n(?s:.*)disconnected`),
		},
	},
}

// example returns the path of the program of an example in the guest.
func (t *tool) example() string { return "/usr/bin/roce-" + strings.TrimSuffix(t.source, ".c") }

// goExamples is our side with the examples of this module. They open the device by its
// address, so they use UDP sockets.
type goExamples struct {
	*programs
	dir string // of the programs
}

func (g *goExamples) label() string { return "example in Go" }

// start passes the program's own flags before those of the case. The output is checked like
// that of the program in C.
func (g *goExamples) start(ctx context.Context, c command, _ string, _ time.Duration) (*proc.Proc, error) {
	own := params{self: g.addr(false)}.expand(c.tool.inGo)
	argv := append([]string{goExample(g.dir, own[0])}, own[1:]...)
	return proc.Start(ctx, g.ns.Argv(append(argv, c.args...)...)...)
}

// goExample returns the path of the program of a folder of examples.
func goExample(dir, folder string) string { return filepath.Join(dir, "go-"+folder) }

// buildExamples compiles the examples of the chosen cases: those in C, which it also adds to the
// files of the guests, and those in Go.
func (o *options) buildExamples(ctx context.Context, chosen []testCase) error {
	for _, c := range chosen {
		if c.tool.preload != "" {
			if err := o.compile(ctx, c.tool.preloaded(), "interop/preload/"+c.tool.preload, "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-ldl"); err != nil {
				return err
			}
		}
		if c.tool.source == "" || !c.program && !c.inGo {
			continue
		}
		if err := o.compile(ctx, c.tool.example(), "cverbs/programs/testdata/manuals/"+c.tool.source, "-D_GNU_SOURCE", "-w", "-lrdmacm", "-lpthread"); err != nil {
			return err
		}
		if !c.inGo {
			continue
		}
		folder := strings.Fields(c.tool.inGo)[0]
		if err := proc.Build(ctx, "examples/"+folder, "go", "build", "-C", o.root, "-o", goExample(o.out, folder), "./examples/"+folder); err != nil {
			return err
		}
	}
	return nil
}

// compile compiles a program or a library in C for the guests, which have it at a path, unless that is done.
func (o *options) compile(ctx context.Context, path, source string, flags ...string) error {
	if o.files[path] != "" {
		return nil
	}
	file := filepath.Join(o.out, filepath.Base(path))
	o.files[path] = file
	return proc.Build(ctx, filepath.Base(source), slices.Concat([]string{"cc", "-O1", "-o", file, filepath.Join(o.root, source), "-libverbs"}, flags)...)
}
