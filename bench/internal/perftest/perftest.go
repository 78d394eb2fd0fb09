// Package perftest parses the output of perftest's programs and of rocectl perf, which has the same format.
package perftest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Row is the result of a program.
type Row struct {
	Iters int // messages

	// Of a bandwidth test.
	Gbits float64 // Gb/s, with --report_gbits; otherwise MiB/s
	Mega  float64 // million messages a second

	// Of a latency test, in µs. READs and atomics: the round trip, others: half of it.
	Typical, P99, P999 float64
}

// Read finds the row of messages of a size in the output of a program.
func Read(output string, size int, latency bool) (Row, error) {
	prefix := fmt.Sprintf(" %d ", size)
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, prefix) {
			if r, ok := read(strings.Fields(line), latency); ok {
				return r, nil
			}
		}
	}
	return Row{}, fmt.Errorf("no result in %q", output)
}

// read reads the columns of a row.
func read(f []string, latency bool) (r Row, ok bool) {
	columns := []*float64{3: &r.Gbits, 4: &r.Mega} // size, iterations, peak, average, rate
	if latency {
		columns = []*float64{4: &r.Typical, 7: &r.P99, 8: &r.P999} // size, iterations, min, max, typical, average, deviation (which may be -nan), 99 %, 99.9 %
	}
	if len(f) != len(columns) {
		return r, false
	}
	var err error
	if r.Iters, err = strconv.Atoi(f[1]); err != nil {
		return r, false
	}
	for i, to := range columns {
		if to == nil {
			continue
		}
		// perftest prints inf if it has not found out how quickly the processor's clock runs.
		if *to, err = strconv.ParseFloat(f[i], 64); err != nil || math.IsInf(*to, 0) || math.IsNaN(*to) {
			return r, false
		}
	}
	return r, true
}
