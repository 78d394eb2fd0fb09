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
)

// rxe is what is needed of a file that make bench-rxe leaves beside the others: one for
// each number of processors.
type rxe struct {
	Date   string   `json:"date"`
	Kernel string   `json:"kernel"`
	Guest  string   `json:"guest"`
	CPU    string   `json:"cpu"`
	CPUs   int      `json:"cpus"`
	Rounds int      `json:"rounds"`
	Rows   []rxeRow `json:"rows"`
}

type rxeRow struct {
	Test string `json:"test"`
	Unit string `json:"unit"`
	By   map[string]struct {
		Median float64 `json:"median"`
		Ratio  float64 `json:"ratio"` // how many times as good as rxe
	} `json:"by"`
}

const rxeName = "rxe" // among the contenders

// loadRXE reads the files that are there, in order.
func loadRXE(dir string) (all []*rxe, err error) {
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
		r := new(rxe)
		if err := json.Unmarshal(b, r); err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		all = append(all, r)
	}
	return all, nil
}

// rxeOn is what was measured on so many processors; nil: nothing.
func (d *data) rxeOn(cpus int) *rxe {
	for _, r := range d.rxe {
		if r.CPUs == cpus {
			return r
		}
	}
	return nil
}

// contenders are ours, in order.
func (r *rxe) contenders() []string {
	all := make(map[string]bool)
	for _, row := range r.Rows {
		for who := range row.By {
			all[who] = true
		}
	}
	delete(all, rxeName)
	return slices.Sorted(maps.Keys(all))
}

// ratio is the best one of a test.
func (r *rxe) ratio(test string) (best float64, of string) {
	if r == nil {
		return 0, ""
	}
	for _, row := range r.Rows {
		for _, who := range r.contenders() {
			if s := row.By[who]; row.Test == test && s.Ratio > best {
				best, of = s.Ratio, fmt.Sprintf("%.4g : %.4g %s, %s", s.Median, row.By[rxeName].Median, row.Unit, who)
			}
		}
	}
	return best, of
}

func (r *rxe) table(w io.Writer) {
	ours := r.contenders()
	head := []string{"", rxeName}
	for _, who := range ours {
		head = append(head, who, "× rxe")
	}
	var rows [][]string
	for _, row := range r.Rows {
		cells := []string{row.Test + ", " + row.Unit, known(row.By[rxeName].Median, four)}
		for _, who := range ours {
			cells = append(cells, known(row.By[who].Median, four), known(row.By[who].Ratio, two))
		}
		rows = append(rows, cells)
	}
	table(w, head, rows)
}

func four(v float64) string { return fmt.Sprintf("%.4g", v) }

// about says where the figures come from.
func (r *rxe) about() string {
	day, _, _ := strings.Cut(r.Date, "T")
	share := "each end has a processor"
	if r.CPUs == 1 {
		share = "both ends share one processor"
	}
	return fmt.Sprintf("Made by `make bench-rxe BENCH_RXE='-cpus %d'` on %s: inside one virtual machine (%s), Linux %s, %s, medians of %d rounds; %s. "+
		"The ratio says how many times as good.", r.CPUs, day, r.Guest, r.Kernel, r.CPU, r.Rounds, share)
}
