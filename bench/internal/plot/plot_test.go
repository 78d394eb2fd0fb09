package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
)

// elements parses an SVG and counts its elements by name and class.
func elements(t *testing.T, svg []byte) map[string]int {
	t.Helper()
	count := make(map[string]int)
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return count
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		count[e.Name.Local]++
		for _, a := range e.Attr {
			switch a.Name.Local {
			case "class":
				count[e.Name.Local+"."+a.Value]++
			case "x", "y", "x1", "x2", "y1", "y2", "cx", "cy":
				if v, err := strconv.ParseFloat(a.Value, 64); err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
					t.Errorf("%s %s=%q", e.Name.Local, a.Name.Local, a.Value)
				}
			}
		}
	}
}

func TestFigure(t *testing.T) {
	f := Figure{Title: "a < b & c", Subtitle: "two panels", Panels: []Panel{
		{Title: "one", X: Steps("size", []float64{64, 1024}, func(v float64) string { return strconv.Itoa(int(v)) }), Y: Linear("Gb/s", 9),
			Series: []Series{
				{Name: "ours", Color: 0, Points: []Point{{64, 1}, {1024, 8}}},
				Level("TCP", 3, 5),
				{Name: "not measured", Color: 1},
			}},
		{Title: "two", X: Percentiles("percentile", 0.9999), Y: Log("µs", 3, 900),
			Series: []Series{{Name: "ours", Color: 0, Points: []Point{{0, 3}, {0.5, 5}, {0.9999, 900}, {1, math.Inf(1)}}}}},
	}}
	svg := f.SVG()
	n := elements(t, svg)
	for what, want := range map[string]int{
		"svg": 1, "g": 2, "circle": 6,
		"path.line c0":      2,
		"line.line c3 dash": 2, // in the panel and in the legend
		"line.line c0":      1, // one entry for both panels
		"text.panel":        2,
	} {
		if n[what] != want {
			t.Errorf("%d × %s, want %d", n[what], what, want)
		}
	}
	for _, s := range []string{"a &lt; b &amp; c", "prefers-color-scheme:dark", ">99.9<", ">1024<"} {
		if !strings.Contains(string(svg), s) {
			t.Errorf("no %q", s)
		}
	}
	if strings.Contains(string(svg), "not measured") {
		t.Error("a series without points is in the legend")
	}
}

// Data that cannot be drawn must still give a readable file.
func TestEmpty(t *testing.T) {
	elements(t, (&Figure{}).SVG())
	f := Figure{Panels: []Panel{{X: Steps("", nil, nil), Y: Log("", 0, 0), Series: []Series{{Points: []Point{{1, 0}, {math.NaN(), -1}}}}}, {X: Linear("", math.NaN()), Y: Linear("", -1)}}}
	elements(t, f.SVG())
}

func TestLinear(t *testing.T) {
	for most, want := range map[float64]float64{9.3: 10, 27.7: 30, 0.83: 1, 1: 1, 41: 50, 100: 100, 6.1e6: 8e6, 0: 1} {
		a := Linear("", most)
		if math.Abs(a.Max-want) > 1e-9*want {
			t.Errorf("Linear(%v) ends at %v, want %v", most, a.Max, want)
		}
		if len(a.Ticks) < 4 || len(a.Ticks) > 8 {
			t.Errorf("Linear(%v) has %d ticks", most, len(a.Ticks))
		}
	}
}

func TestLog(t *testing.T) {
	a := Log("", 3.2, 418)
	if a.Ticks[0].At != 1 || math.Abs(a.Ticks[len(a.Ticks)-1].At-500) > 1e-6 {
		t.Errorf("from %v to %v, want 1 to 500", a.Ticks[0].At, a.Ticks[len(a.Ticks)-1].At)
	}
	if a := Log("", 0.002, 50_000); a.Ticks[0].Label != "0.001" || a.Ticks[len(a.Ticks)-3].Label != "10000" {
		t.Errorf("labels %v", a.Ticks)
	}
	if got := a.place(10); math.Abs(got-1/math.Log10(500)) > 1e-9 {
		t.Errorf("10 is at %v", got)
	}
}

func TestPercentiles(t *testing.T) {
	a := Percentiles("", 0.9999)
	for q, want := range map[float64]float64{0: 0, 0.9: 0.25, 0.99: 0.5, 0.999: 0.75, 0.9999: 1, 1: 1} {
		if got := a.place(q); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v is at %v, want %v", q, got, want)
		}
	}
}
