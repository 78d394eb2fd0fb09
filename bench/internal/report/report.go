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

// Write writes README.md and the plots of a run into a folder, and removes plots that
// were of another run.
func Write(dir string, r *result.Run) error {
	beside, err := loadRXE(dir)
	if err != nil {
		return err
	}
	d := newData(r, beside)
	plots := figures(d)
	for _, pattern := range []string{"goodput-*.svg", "messages.svg", "latency.svg", "scaling.svg"} {
		old, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return err
		}
		for _, name := range old {
			if _, again := plots[filepath.Base(name)]; !again {
				if err := os.Remove(name); err != nil {
					return err
				}
			}
		}
	}
	names := slices.Sorted(maps.Keys(plots))
	for _, name := range names {
		f := plots[name]
		if err := os.WriteFile(filepath.Join(dir, name), f.SVG(), 0o644); err != nil {
			return err
		}
	}
	var text bytes.Buffer
	markdown(&text, d, names)
	return os.WriteFile(filepath.Join(dir, "README.md"), append(bytes.TrimRight(text.Bytes(), "\n"), '\n'), 0o644)
}

// Summary prints the targets and what has been reached of them.
func Summary(w io.Writer, dir string, r *result.Run) error {
	beside, err := loadRXE(dir)
	if err != nil {
		return err
	}
	d := newData(r, beside)
	for _, t := range targets() {
		v, of := t.measure(d)
		if verdict := t.verdict(v); verdict != "not measured" {
			fmt.Fprintf(w, "%-64s %10s  %-16s %s\n", t.what, t.format(v), verdict, of)
		}
	}
	return nil
}
