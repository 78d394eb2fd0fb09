// Package report makes tables and plots of a run.
package report

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/goroce/roce/bench/internal/result"
)

// Write writes README.md and the plots of a run to a folder, and removes plots of another run
// from it.
func Write(dir string, r *result.Run) error {
	rxe, err := loadRXE(dir)
	if err != nil {
		return err
	}
	d := newData(r, rxe)
	plots := figures(d)
	for _, pattern := range []string{"goodput-*.svg", "messages.svg", "latency.svg", "scaling.svg"} {
		old, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, name := range old {
			if _, again := plots[filepath.Base(name)]; again {
				continue
			}
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	for name, f := range plots {
		if err := os.WriteFile(filepath.Join(dir, name), f.SVG(), 0o644); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	markdown(&text, d, slices.Collect(maps.Keys(plots)))
	return os.WriteFile(filepath.Join(dir, "README.md"), append(bytes.TrimRight(text.Bytes(), "\n"), '\n'), 0o644)
}

// Summary prints the targets and the values that were measured for them.
func Summary(w io.Writer, dir string, r *result.Run) error {
	rxe, err := loadRXE(dir)
	if err != nil {
		return err
	}
	d := newData(r, rxe)
	for _, t := range targets() {
		v, of := t.measure(d)
		if verdict := t.verdict(v); verdict != notMeasured {
			fmt.Fprintf(w, "%-64s %10s  %-16s %s\n", t.what, t.format(v), verdict, of)
		}
	}
	return nil
}
