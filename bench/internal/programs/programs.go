//go:build linux

// Package programs measures unchanged C programs for libibverbs on this stack's libraries: perftest in turn with rocectl
// perf, and Open MPI in turn with itself over TCP.
package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/lab"
	"github.com/goroce/roce/bench/internal/result"
)

// Suite is the programs of one run.
type Suite struct {
	lab  *lab.Lab
	root string // of the repository
	dir  string // temporary files of this run
	port int    // TCP port of the last test, over which its ends exchange their queue pairs
}

// firstPort is the number before the TCP port of the first test.
const firstPort = 20000

// needed are the programs that must be installed, by contender.
var needed = map[string][]string{
	result.ByPerftest: {"ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_send_lat", "ib_write_lat", "ib_read_lat"},
	result.ByOpenMPI:  {"mpirun", "mpicc"},
}

// New builds the libraries and programs. missing lists the contenders that it cannot measure here, and why.
func New(ctx context.Context, l *lab.Lab, root string) (s *Suite, missing map[string]string, err error) {
	s = &Suite{lab: l, root: root, port: firstPort}
	if s.dir, err = os.MkdirTemp("", "roce-bench-"); err != nil {
		return nil, nil, err
	}
	missing = make(map[string]string)
	fail := func(who string, err error) {
		if err != nil && missing[who] == "" {
			missing[who] = err.Error()
		}
	}
	for who, all := range needed {
		for _, p := range all {
			_, err := exec.LookPath(p)
			fail(who, err)
		}
	}
	if err := s.build(ctx, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", s.rocectl(), "./cmd/rocectl"); err != nil {
		s.Close()
		return nil, nil, err
	}
	if err := s.build(ctx, "scripts/cverbs"); err != nil {
		fail(result.ByPerftest, err)
		fail(result.ByOpenMPI, err)
	}
	if missing[result.ByOpenMPI] == "" {
		fail(result.ByOpenMPI, errors.Join(s.build(ctx, "mpicc", "-O2", "-Wall", "-o", s.pingpong(), "bench/mpi/pingpong.c"), s.writeAgent()))
	}
	return s, missing, nil
}

// Close removes the temporary files.
func (s *Suite) Close() { os.RemoveAll(s.dir) }

func (s *Suite) rocectl() string   { return filepath.Join(s.dir, "rocectl") }
func (s *Suite) pingpong() string  { return filepath.Join(s.dir, "pingpong") }
func (s *Suite) agent() string     { return filepath.Join(s.dir, "agent") }
func (s *Suite) libraries() string { return filepath.Join(s.dir, "lib") }

// build runs a command in the repository that builds something.
func (s *Suite) build(ctx context.Context, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	if strings.Contains(argv[0], "/") {
		cmd.Path = filepath.Join(s.root, argv[0])
		cmd.Err = nil
	}
	cmd.Dir, cmd.Env = s.root, append(os.Environ(), "OUT="+s.libraries())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, last(string(out)))
	}
	return nil
}

// Measure measures one round of a case between the two ends of a pair.
func (s *Suite) Measure(ctx context.Context, spec harness.Spec, pair *lab.Pair) (harness.Measure, error) {
	if spec.By == result.ByOpenMPI {
		return s.mpi(ctx, spec, pair)
	}
	return s.perftest(ctx, spec, pair)
}

// last returns the end of an output, for errors.
func last(out string) string {
	if out = strings.TrimSpace(out); len(out) > 600 {
		out = "…" + out[len(out)-600:]
	}
	return out
}
