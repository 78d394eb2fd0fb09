//go:build linux

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goroce/roce/interop/proc"
)

// examples are programs that manuals teach with. They are compiled against the distribution's headers
// and libraries, and the same binary runs in the guest and on our libraries. The other examples of
// the manual, mckey among them, are rdma-core's own or need what rxe has not.
var examples = []*tool{
	{
		name: "RDMA_RC_example", source: "RDMA_RC_example.c", oob: true,
		linuxArgs: []string{"-g", "1"}, // the GID of the IPv4 address
		args:      [2]string{"-p {port}", "-p {port} {peer}"},
		good: [2]*regexp.Regexp{
			regexp.MustCompile(`Contents of server buffer: 'RDMA write operation'\n\ntest result is 0`),
			regexp.MustCompile(`Message is: 'SEND operation      '\n(?s:.*)Contents of server's buffer: 'RDMA read operation '\n(?s:.*)test result is 0`),
		},
	},
	{
		name: "srq", source: "srq.c",
		args: [2]string{"-s -a {self} -p {port}", "-a {peer} -p {port}"},
		good: [2]*regexp.Regexp{regexp.MustCompile(`send count: 2\n`), regexp.MustCompile(`send count: 100, .*\nrecv count: 2\n`)},
	},
	{
		name: "mc", source: "mc.c", // its completion queue has two entries
		up:   regexp.MustCompile(`waiting for messages`),
		args: [2]string{"-m 239.77.1.4 -b {self} -c 2", "-s -m 239.77.1.4 -b {self} -c 2"},
		good: [2]*regexp.Regexp{regexp.MustCompile(`received message 2\n`), regexp.MustCompile(`sent message 2\n`)},
	},
	{
		name: "flow", source: "flow.c",
		args: [2]string{"-s {self} {port}", "-c {peer} {port}"},
		good: [2]*regexp.Regexp{
			regexp.MustCompile(`the region is as the client wrote it\n(?s:.*)disconnected`),
			regexp.MustCompile(`what was read is what was written\n(?s:.*)disconnected`),
		},
	},
}

// example is where the program of an example is, in the guest and on this machine.
func (t *tool) example() string { return "/usr/bin/roce-" + strings.TrimSuffix(t.source, ".c") }

// buildExamples compiles the examples of the chosen cases, and puts them among the files of the guests.
func (o *options) buildExamples(ctx context.Context, chosen []testCase) error {
	for _, c := range chosen {
		if c.tool.source == "" || o.files[c.tool.example()] != "" {
			continue
		}
		file := filepath.Join(o.out, filepath.Base(c.tool.example()))
		source := filepath.Join(o.root, "cverbs", "programs", "testdata", "manuals", c.tool.source)
		if out, err := proc.Run(ctx, "cc", "-D_GNU_SOURCE", "-O1", "-w", "-o", file, source, "-libverbs", "-lrdmacm", "-lpthread"); err != nil {
			return fmt.Errorf("compiling %s: %w\n%s", c.tool.source, err, out)
		}
		o.files[c.tool.example()] = file
	}
	return nil
}
