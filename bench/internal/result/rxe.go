package result

import "fmt"

// RXE is a comparison with rxe: a file of make bench-rxe, one for each number of processors.
type RXE struct {
	Date   string    `json:"date"`
	Kernel string    `json:"kernel"`
	Guest  string    `json:"guest,omitempty"` // KVM or emulated, if it was a virtual machine
	CPU    string    `json:"cpu"`
	CPUs   int       `json:"cpus"`
	Rounds int       `json:"rounds"`
	Run    string    `json:"run,omitempty"` // which tests, a regular expression; empty: all
	Rows   []*RXERow `json:"rows"`
}

// LibrariesPrefix is the prefix of the names of contenders that are rxe's programs on this stack's libraries. The link
// follows.
const LibrariesPrefix = "libibverbs "

// Tests of rxe and this stack together.
const (
	FromRXE      = "READ 64 KiB from rxe, PMTU 4096"
	FromRXELossy = FromRXE + ", 1 % lost"
)

// RXERow is one test.
type RXERow struct {
	Test    string                `json:"test"`
	Program string                `json:"program"`
	Size    int                   `json:"size"`
	Flags   string                `json:"flags,omitempty"`
	Unit    string                `json:"unit"`
	Better  string                `json:"better"` // higher or lower
	By      map[string]*RXESeries `json:"by"`
}

// RXESeries is the result of one contender, by rounds.
type RXESeries struct {
	Rounds []RXESample `json:"rounds"`
	Median float64     `json:"median"`
	P99    float64     `json:"p99,omitempty"`
	Ratio  float64     `json:"ratio,omitempty"` // how many times as good as rxe
	Failed []string    `json:"failed,omitempty"`
}

// RXESample is one measurement.
type RXESample struct {
	Value float64 `json:"value"`           // in the row's unit
	P99   float64 `json:"p99,omitempty"`   // of a latency
	Iters int     `json:"iters,omitempty"` // messages
}

// Row returns the row of a test, or nil if it was not run.
func (r *RXE) Row(test string) *RXERow {
	for _, row := range r.Rows {
		if row.Test == test {
			return row
		}
	}
	return nil
}

// Series returns the results of a contender, or empty ones if there are none.
func (r *RXERow) Series(who string) *RXESeries {
	if s := r.By[who]; s != nil {
		return s
	}
	return &RXESeries{}
}

// SizeName formats a size of n bytes for people, with sep between number and unit.
func SizeName(n int, sep string) string {
	for _, u := range []struct {
		size int
		name string
	}{{1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprint(n/u.size, sep, u.name)
		}
	}
	return fmt.Sprint(n, sep, "B")
}
