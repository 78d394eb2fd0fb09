// Package plot draws line charts as SVG that needs no script and no font of its own,
// and can be read on light and on dark pages.
package plot

import (
	"math"
	"strconv"
)

// Axis says where values are between the ends of a panel.
type Axis struct {
	Label    string
	Min, Max float64 // in the scale of at
	Ticks    []Tick
	at       func(v float64) float64 // nil: as it is
}

// Tick is a labelled place on an axis; without label it is a thin line.
type Tick struct {
	At    float64
	Label string
}

// place is where v is, 0 to 1.
func (a *Axis) place(v float64) float64 {
	if a.at != nil {
		v = a.at(v)
	}
	if a.Max == a.Min {
		return 0
	}
	return (v - a.Min) / (a.Max - a.Min)
}

// Linear makes an axis from 0 to at least most, with round numbers.
func Linear(label string, most float64) Axis {
	if !(most > 0) {
		most = 1
	}
	step := math.Pow(10, math.Floor(math.Log10(most)))
	for _, part := range []float64{0.1, 0.2, 0.5, 1, 2} {
		if most/(step*part) <= 6 {
			step *= part
			break
		}
	}
	a := Axis{Label: label, Max: math.Ceil(most/step-1e-9) * step}
	for i := 0; float64(i)*step <= a.Max+step/2; i++ {
		v := float64(i) * step
		a.Ticks = append(a.Ticks, Tick{v, strconv.FormatFloat(v, 'g', 4, 64)})
	}
	return a
}

// Log makes a logarithmic axis from a power of ten at most least to one, two or five
// times a power of ten at least most.
func Log(label string, least, most float64) Axis {
	if !(least > 0) || !(most > least) {
		least, most = 1, 10
	}
	a := Axis{Label: label, at: math.Log10, Min: math.Floor(math.Log10(least) + 1e-9)}
	a.Max = a.Min
	for decade := a.Min; ; decade++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow10(int(decade))
			a.Max = math.Log10(v)
			t := Tick{At: v}
			if m == 1 || most/least < 200 {
				t.Label = strconv.FormatFloat(v, 'f', -1, 64)
			}
			a.Ticks = append(a.Ticks, t)
			if v >= most*(1-1e-9) {
				return a
			}
		}
	}
}

// Steps makes a logarithmic axis with the given places and their names.
func Steps(label string, places []float64, name func(float64) string) Axis {
	a := Axis{Label: label, at: math.Log2}
	if len(places) == 0 {
		return a
	}
	a.Min, a.Max = math.Log2(places[0]), math.Log2(places[len(places)-1])
	for _, p := range places {
		a.Ticks = append(a.Ticks, Tick{p, name(p)})
	}
	return a
}

// Names makes an axis with the places 0, 1, 2 and so on.
func Names(label string, names []string) Axis {
	a := Axis{Label: label, Max: float64(len(names) - 1)}
	for i, n := range names {
		a.Ticks = append(a.Ticks, Tick{float64(i), n})
	}
	return a
}

// Percentiles makes an axis for shares from 0 to most on which the rest to 1 shrinks
// by the same factor over the same distance: 90, 99 and 99.9 % are as far apart.
func Percentiles(label string, most float64) Axis {
	a := Axis{Label: label, at: func(q float64) float64 { return -math.Log10(1 - min(q, most)) }}
	a.Max = a.at(most)
	for _, t := range []Tick{{0, "0"}, {0.5, "50"}, {0.9, "90"}, {0.99, "99"}, {0.999, "99.9"}, {0.9999, "99.99"}} {
		if t.At <= most {
			a.Ticks = append(a.Ticks, t)
		}
	}
	return a
}
