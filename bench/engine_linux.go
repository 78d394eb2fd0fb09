package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/goroce/roce/bench/internal/result"
)

// engine runs the benchmarks of package qp. For benchmarks of the engine alone it builds them without ICRCs.
type engine struct {
	root   string // of the module
	time   string // of one benchmark
	folder string // of the test binaries; empty: they are not built yet
	out    strings.Builder
}

var engineBenchmarks = []struct{ name, tags string }{{"BenchmarkEngine", ""}, {"BenchmarkEngineAlone", "noicrc"}}

func newEngine(o options) *engine {
	e := &engine{root: o.root, time: "60ms"}
	if o.quick {
		e.time = "1000x"
	}
	return e
}

// round runs each benchmark once.
func (e *engine) round(ctx context.Context) error {
	if err := e.build(ctx); err != nil {
		return err
	}
	for _, b := range engineBenchmarks {
		out, err := e.run(ctx, e.binary(b.name), "-test.run", "^$", "-test.bench", "^"+b.name+"$", "-test.benchmem", "-test.benchtime", e.time)
		if err != nil {
			return err
		}
		e.out.WriteString(out)
	}
	return nil
}

func (e *engine) points() ([]*result.Point, error) { return parseEngine(e.out.String()) }

func (e *engine) binary(benchmark string) string { return filepath.Join(e.folder, benchmark) }

func (e *engine) build(ctx context.Context) (err error) {
	if e.folder != "" {
		return nil
	}
	if e.folder, err = os.MkdirTemp("", "roce-bench-"); err != nil {
		return err
	}
	for _, b := range engineBenchmarks {
		if _, err := e.run(ctx, "go", "test", "-c", "-tags", b.tags, "-o", e.binary(b.name), "."); err != nil {
			e.close()
			return err
		}
	}
	return nil
}

func (e *engine) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join(e.root, "qp")
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, trouble.String()+out.String())
	}
	return out.String(), nil
}

func (e *engine) close() {
	if e.folder != "" {
		os.RemoveAll(e.folder)
		e.folder = ""
	}
}
