package conform

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"
)

// Sizes of a plot.
const (
	plotWidth  = 640
	plotHeight = 180
	plotLeft   = 44
	plotRight  = 16
	plotTop    = 10
	plotBottom = 28
	plotPoints = 400 // a curve has at most about twice this number of points
)

// plot draws the cumulative distribution of times, on a logarithmic axis, as SVG.
func plot(t Times) template.HTML {
	lo, hi := decade(t.Least, math.Floor), decade(t.Most, math.Ceil)
	if hi <= lo {
		hi = lo + 1
	}
	x := func(d time.Duration) float64 {
		v := math.Log10(max(float64(d), 1))
		return plotLeft + (v-lo)/(hi-lo)*(plotWidth-plotLeft-plotRight)
	}
	y := func(share float64) float64 {
		return plotHeight - plotBottom - share*(plotHeight-plotTop-plotBottom)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="distribution of %s">`,
		plotWidth, plotHeight, plotWidth, plotHeight, t.Kind)
	for e := lo; e <= hi; e++ {
		unit := time.Duration(math.Pow(10, e))
		at := x(unit)
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#ddd"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`,
			at, plotTop, at, plotHeight-plotBottom, at, plotHeight-plotBottom+16, unit)
	}
	for _, share := range []float64{0, 0.5, 1} {
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%.0f %%</text>`,
			plotLeft, y(share), plotWidth-plotRight, y(share), plotLeft-6, y(share)+4, share*100)
	}
	b.WriteString(`<polyline fill="none" stroke="#1a5fb4" stroke-width="1.6" points="`)
	n := len(t.Sorted)
	step := max(1, n/plotPoints)
	before := 0.0
	for i := 0; i < n; i += step {
		at := min(i+step, n)
		d := t.Sorted[at-1]
		fmt.Fprintf(&b, "%.1f,%.1f %.1f,%.1f ", x(d), y(before), x(d), y(float64(at)/float64(n)))
		before = float64(at) / float64(n)
	}
	b.WriteString(`"/></svg>`)
	return template.HTML(b.String()) // safe: it has only numbers, and names from this package
}

// decade returns the exponent of the power of ten below or above a time in nanoseconds.
func decade(d time.Duration, to func(float64) float64) float64 {
	return to(math.Log10(max(float64(d), 1)))
}
