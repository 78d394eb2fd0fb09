//go:build linux

package programs

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/lab"
	"github.com/goroce/roce/bench/internal/result"
)

// writeAgent writes a program that mpirun uses instead of ssh: it starts a command at side 1, on the core of that side.
func (s *Suite) writeAgent() error {
	script := "#!/bin/sh\nshift\nexec " + strings.Join(s.lab.Argv(1, "sh", "-c"), " ") + " \"$*\"\n"
	return os.WriteFile(s.agent(), []byte(script), 0o755)
}

// mpi runs the pingpong program with one rank at each side: over this stack by UCX, or over TCP by
// Open MPI itself.
func (s *Suite) mpi(ctx context.Context, spec harness.Spec, pair *lab.Pair) (m harness.Measure, err error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	net := netip.PrefixFrom(pair.Ends[0].IP, 24).Masked().String()
	argv := []string{"mpirun", "--allow-run-as-root", "-np", "2", "--host", fmt.Sprintf("%s:1,%s:1", pair.Ends[0].IP, pair.Ends[1].IP),
		"--mca", "plm_rsh_agent", s.agent(), "--mca", "oob_tcp_if_include", net, "--mca", "hwloc_base_binding_policy", "none"}
	if spec.Link == "tcp" {
		argv = append(argv, "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", net)
	} else {
		argv = append(argv, "--mca", "pml", "ucx", "--mca", "btl", "^openib", "-x", "UCX_TLS=rc_v,self", "-x", "UCX_NET_DEVICES=roce0:1",
			s.rocectl(), "run", "--lib", s.libraries(), "--sysfs=always", "--dev", pair.Name, "--link", spec.Link, "--")
	}
	argv = append(argv, s.pingpong(), strings.TrimPrefix(spec.Op, result.MPIPrefix), strconv.Itoa(spec.Size), strconv.Itoa(spec.Count))
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // mpirun then ends the ranks
	cmd.WaitDelay = 5 * time.Second
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := s.lab.Start(0, cmd); err != nil {
		return m, err
	}
	if err := cmd.Wait(); err != nil {
		return m, fmt.Errorf("mpirun: %w: %s", err, last(out.String()+trouble.String()))
	}
	return parsePingPong(out.String(), spec.Size)
}

// parsePingPong parses the output of bench/mpi/pingpong.c.
func parsePingPong(out string, size int) (m harness.Measure, err error) {
	var l harness.Latency
	for line := range strings.Lines(out) {
		switch {
		case strings.HasPrefix(line, "lat "):
			_, err = fmt.Sscanf(line, "lat %d %g %g %g", &l.Count, &l.P50, &l.P99, &l.P999)
			return harness.Measure{Messages: uint64(l.Count), Latency: &l, Mode: "round trip"}, err
		case strings.HasPrefix(line, "bw "):
			_, err = fmt.Sscanf(line, "bw %d %g", &m.Messages, &m.Seconds)
			m.Bytes = m.Messages * uint64(size)
			return m, err
		}
	}
	return m, fmt.Errorf("no result in %q", last(out))
}
