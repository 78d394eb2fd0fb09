//go:build linux

package programs

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/lab"
	"github.com/goroce/roce/bench/internal/perftest"
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/interop/proc"
)

// patience is the time within which a server must listen, and a test must end.
const patience = 20 * time.Second

// perftest runs one of perftest's tests: the server at side 1, the client at side 0.
func (s *Suite) perftest(ctx context.Context, spec harness.Spec, pair *lab.Pair) (m harness.Measure, err error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	s.port++
	var outputs [2]bytes.Buffer
	start := func(side int, more ...string) (*exec.Cmd, error) {
		argv := append(s.argv(spec, pair.Name, side), more...)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+s.libraries(), fmt.Sprintf("ROCE_FLAGS=--dev=%s --link=%s", pair.Name, spec.Link))
		cmd.Stdout, cmd.Stderr = &outputs[side], &outputs[side]
		if spec.Free {
			return cmd, s.lab.StartFree(side, cmd)
		}
		return cmd, s.lab.Start(side, cmd)
	}
	server, err := start(1)
	if err != nil {
		return m, err
	}
	defer server.Wait()
	defer server.Process.Kill()
	if err := listens(ctx, server.Process.Pid, s.port); err != nil {
		return m, fmt.Errorf("%s of %s does not listen: %w", spec.Op, spec.By, err)
	}
	client, err := start(0, pair.Ends[1].IP.String())
	if err != nil {
		return m, err
	}
	if err := client.Wait(); err != nil {
		server.Process.Kill()
		server.Wait() // it writes no more
		return m, fmt.Errorf("%s of %s: %w: %s; server: %s", spec.Op, spec.By, err, last(outputs[0].String()), last(outputs[1].String()))
	}
	row, err := perftest.Read(outputs[0].String(), spec.Size, isLatency(spec))
	if err != nil {
		return m, err
	}
	return measureOf(row, spec), nil
}

// argv returns the command line of a side, without the server's address. Both contenders get the same flags. Before
// them rocectl gets flags for its devices, and for polling where perftest polls.
func (s *Suite) argv(spec harness.Spec, dev string, side int) []string {
	argv := []string{"ib_" + spec.Op}
	if spec.By == result.ByRocectl {
		argv = []string{s.rocectl(), "perf", spec.Op, "--dev", dev, "--link", spec.Link, fmt.Sprintf("--poll=%t", side == 0 || serverPolls(spec.Op))}
	}
	return append(argv, "-F", "-s", strconv.Itoa(spec.Size), "-n", strconv.Itoa(spec.Count), "-p", strconv.Itoa(s.port))
}

// serverPolls reports whether the server of a test polls. The server of one-sided operations waits for TCP until the
// client has finished, except that the ends of write_lat write in turn.
func serverPolls(op string) bool { return strings.HasPrefix(op, "send_") || op == "write_lat" }

func isLatency(spec harness.Spec) bool { return strings.HasSuffix(spec.Op, "_lat") }

// measureOf makes a Measure from a program's result.
func measureOf(r perftest.Row, spec harness.Spec) harness.Measure {
	if isLatency(spec) {
		ways := 1.0
		if spec.Kind == result.BusyTrips { // it prints half the round trip
			ways = 2
		}
		return harness.Measure{Messages: uint64(r.Iters), Latency: &harness.Latency{Count: r.Iters, P50: ways * r.Typical, P99: ways * r.P99, P999: ways * r.P999}}
	}
	m := harness.Measure{Messages: uint64(r.Iters), Bytes: uint64(r.Iters) * uint64(spec.Size)}
	if r.Mega > 0 {
		m.Seconds = float64(r.Iters) / (1e6 * r.Mega)
	}
	return m
}

// listens waits until a process listens on a TCP port in its namespace.
func listens(ctx context.Context, pid, port int) error {
	for tick := time.Tick(5 * time.Millisecond); ; {
		if ok, err := proc.Listens(strconv.Itoa(pid), port); ok || err != nil {
			return err // of a process that has ended
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
