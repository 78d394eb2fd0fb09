package report

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goroce/roce/bench/internal/result"
)

const rxeName = "rxe" // among the contenders

// loadRXE reads the files of make bench-rxe in order: one for each number of processors, or for some tests on that number.
func loadRXE(dir string) (all []*result.RXE, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "rxe-*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		r := new(result.RXE)
		if err := json.Unmarshal(b, r); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		all = append(all, r)
	}
	return all, nil
}

// contenders returns the names of ours, in order.
func contenders(r *result.RXE) []string {
	all := make(map[string]bool)
	for _, row := range r.Rows {
		for who := range row.By {
			all[who] = true
		}
	}
	delete(all, rxeName)
	return slices.Sorted(maps.Keys(all))
}

func rxeTable(w io.Writer, r *result.RXE) {
	ours := contenders(r)
	head := []string{"", rxeName}
	for _, who := range ours {
		head = append(head, who, "× rxe")
	}
	var rows [][]string
	for _, row := range r.Rows {
		cells := []string{row.Test + ", " + row.Unit, known(row.Series(rxeName).Median, number)}
		for _, who := range ours {
			cells = append(cells, known(row.Series(who).Median, number), known(row.Series(who).Ratio, two))
		}
		rows = append(rows, cells)
	}
	table(w, head, rows)
}

// about describes how the figures of r were made.
func about(r *result.RXE) string {
	day, _, _ := strings.Cut(r.Date, "T")
	share := "each end has a processor"
	if r.CPUs == 1 {
		share = "both ends share one processor"
	}
	flags := fmt.Sprintf("-cpus %d", r.CPUs)
	if r.Run != "" {
		flags += fmt.Sprintf(" -run %q", r.Run)
	}
	return fmt.Sprintf("Made by `make bench-rxe BENCH_RXE='%s'` on %s: inside one virtual machine (%s), Linux %s, %s, medians of %d rounds; %s. "+
		"The ratio says how many times as good.", flags, day, r.Guest, r.Kernel, r.CPU, r.Rounds, share)
}
