// Package plot draws line charts as SVG, without scripts and without fonts of its own, for light and
// dark pages.
package plot

import (
	"math"
	"strconv"
)

// Axis maps values to places between the ends of a panel.
type Axis struct {
	Label    string
	Min, Max float64 // in the scale of the function at
	Ticks    []Tick
	at       func(v float64) float64 // the scale; nil: linear
}

// Tick is a line at a place of an axis, with a label or without.
type Tick struct {
	At    float64
	Label string
}

// place returns the place of v: 0 to 1.
func (a *Axis) place(v float64) float64 {
	if a.at != nil {
		v = a.at(v)
	}
	if a.Max == a.Min {
		return 0
	}
	return (v - a.Min) / (a.Max - a.Min)
}

// Linear makes an axis from 0 to most or a little more, with round numbers.
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

// Log makes a logarithmic axis. It begins at the largest power of ten that is at most least. It ends
// at one, two or five times a power of ten, at or above most.
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

// Steps makes a logarithmic axis with ticks at the given places; name returns their labels.
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

// Names makes an axis with labelled ticks at 0, 1, 2 and so on.
func Names(label string, names []string) Axis {
	a := Axis{Label: label, Max: float64(len(names) - 1)}
	for i, n := range names {
		a.Ticks = append(a.Ticks, Tick{float64(i), n})
	}
	return a
}

// Percentiles makes an axis for shares from 0 to most, logarithmic in the difference to 1: 90, 99 and
// 99.9 % have the same distance.
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
