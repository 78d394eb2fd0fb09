package plot

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strings"
)

// Figure is panels side by side with one legend below.
type Figure struct {
	Title, Subtitle string
	Panels          []Panel
}

// Panel is one chart.
type Panel struct {
	Title  string
	X, Y   Axis
	Series []Series
}

// Series is a line. Lines of the same name have one entry in the legend.
type Series struct {
	Name   string
	Color  int // index of the color
	Dashed bool
	Points []Point
}

// Point is a point of a line, in the values of the axes.
type Point struct{ X, Y float64 }

// Level makes a dashed horizontal line over the whole panel.
func Level(name string, color int, y float64) Series {
	return Series{Name: name, Color: color, Dashed: true, Points: []Point{{math.NaN(), y}}}
}

// colors are the colors of lines on light and dark pages: blue, orange, green, violet, grey, red.
// Readers who cannot distinguish red from green can distinguish these.
var colors = []struct{ light, dark string }{
	{"#0969da", "#58a6ff"}, {"#bc4c00", "#f0883e"}, {"#1a7f37", "#3fb950"},
	{"#8250df", "#bc8cff"}, {"#57606a", "#8b949e"}, {"#cf222e", "#ff7b72"},
}

// Sizes in pixels.
const (
	panelW, panelH = 300, 220
	left, right    = 52, 16
	top, bottom    = 74, 44
	legendRow      = 20
	legendEntry    = 170
	margin         = 12
)

// SVG draws the figure.
func (f *Figure) SVG() []byte {
	var b bytes.Buffer
	legend := f.legend()
	width := margin*2 + len(f.Panels)*(left+panelW+right)
	perRow := max((width-2*margin)/legendEntry, 1)
	rows := (len(legend) + perRow - 1) / perRow
	height := top + panelH + bottom + rows*legendRow + margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s">`+"\n",
		width, height, width, height, html.EscapeString(f.Title))
	f.style(&b)
	fmt.Fprintf(&b, `<rect class="bg" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	text(&b, "title", "", margin+4, 26, f.Title)
	text(&b, "small", "", margin+4, 44, f.Subtitle)
	for i := range f.Panels {
		fmt.Fprintf(&b, `<g transform="translate(%d,%d)">`+"\n", margin+i*(left+panelW+right)+left, top)
		f.Panels[i].draw(&b)
		b.WriteString("</g>\n")
	}
	for i, s := range legend {
		x, y := margin+4+i%perRow*legendEntry, top+panelH+bottom+i/perRow*legendRow
		fmt.Fprintf(&b, `<line class="%s" x1="%d" y1="%d" x2="%d" y2="%d"/>`+"\n", s.class(), x, y+4, x+22, y+4)
		text(&b, "small", "", float64(x+28), float64(y+8), s.Name)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// style writes the style sheet, for light and dark pages.
func (f *Figure) style(b *bytes.Buffer) {
	sheet := func(bg, edge, ink, faint, grid string, color func(i int) string) string {
		var s strings.Builder
		fmt.Fprintf(&s, ".bg{fill:%s;stroke:%s}.grid{stroke:%s}.axis{stroke:%s}text{fill:%s}.small,.tick{fill:%s}", bg, edge, grid, faint, ink, faint)
		for i := range colors {
			fmt.Fprintf(&s, ".c%d{stroke:%s}.d%d{fill:%s;stroke:%s}", i, color(i), i, color(i), bg)
		}
		return s.String()
	}
	fmt.Fprint(b, "<style>text{font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}.title{font-size:15px;font-weight:600}"+
		".panel{font-weight:600}.tick{font-size:10.5px}.end{text-anchor:end}.mid{text-anchor:middle}"+
		".line{fill:none;stroke-width:2;stroke-linejoin:round}.dash{stroke-dasharray:5 4;stroke-width:1.5}.grid{stroke-width:1}\n")
	fmt.Fprintln(b, sheet("#ffffff", "#d0d7de", "#1f2328", "#59636e", "#eaeef2", func(i int) string { return colors[i].light }))
	fmt.Fprintln(b, "@media (prefers-color-scheme:dark){"+
		sheet("#0d1117", "#30363d", "#e6edf3", "#9198a1", "#21262d", func(i int) string { return colors[i].dark })+"}</style>")
}

// legend returns one series of each name.
func (f *Figure) legend() (all []Series) {
	seen := make(map[string]bool)
	for _, p := range f.Panels {
		for _, s := range p.Series {
			if !seen[s.Name] && len(s.Points) > 0 {
				seen[s.Name] = true
				all = append(all, s)
			}
		}
	}
	return all
}

func (s *Series) class() string {
	c := fmt.Sprintf("line c%d", s.Color%len(colors))
	if s.Dashed {
		c += " dash"
	}
	return c
}

func (p *Panel) draw(b *bytes.Buffer) {
	x := func(v float64) float64 { return clamp(p.X.place(v)) * panelW }
	y := func(v float64) float64 { return panelH - clamp(p.Y.place(v))*panelH }
	text(b, "panel", "", 0, -10, p.Title)
	for _, t := range p.Y.Ticks {
		at := y(t.At)
		fmt.Fprintf(b, `<line class="grid" x1="0" y1="%.1f" x2="%d" y2="%.1f"/>`+"\n", at, panelW, at)
		text(b, "tick end", "", -6, at+4, t.Label)
	}
	for _, t := range p.X.Ticks {
		at := x(t.At)
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" y1="0" x2="%.1f" y2="%d"/>`+"\n", at, at, panelH)
		text(b, "tick mid", "", at, panelH+15, t.Label)
	}
	fmt.Fprintf(b, `<path class="axis" fill="none" d="M0,0V%dH%d"/>`+"\n", panelH, panelW)
	text(b, "small mid", "", panelW/2, panelH+32, p.X.Label)
	text(b, "small mid", "rotate(-90)", -panelH/2, -left+14, p.Y.Label)
	for _, s := range p.Series {
		s.draw(b, x, y)
	}
}

func (s *Series) draw(b *bytes.Buffer, x, y func(float64) float64) {
	switch {
	case len(s.Points) == 0:
	case math.IsNaN(s.Points[0].X):
		at := y(s.Points[0].Y)
		fmt.Fprintf(b, `<line class="%s" x1="0" y1="%.1f" x2="%d" y2="%.1f"/>`+"\n", s.class(), at, panelW, at)
	default:
		var path strings.Builder
		for i, p := range s.Points {
			fmt.Fprintf(&path, "%c%.1f,%.1f", "ML"[min(i, 1)], x(p.X), y(p.Y))
		}
		fmt.Fprintf(b, `<path class="%s" d="%s"/>`+"\n", s.class(), path.String())
		if s.Dashed {
			return
		}
		for _, p := range s.Points {
			fmt.Fprintf(b, `<circle class="d%d" cx="%.1f" cy="%.1f" r="3"/>`+"\n", s.Color%len(colors), x(p.X), y(p.Y))
		}
	}
}

// clamp limits v to 0 to 1. NaN becomes 0.
func clamp(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return min(max(v, 0), 1)
}

func text(b *bytes.Buffer, class, transform string, x, y float64, s string) {
	if s == "" {
		return
	}
	if transform != "" {
		transform = fmt.Sprintf(` transform="%s"`, transform)
	}
	fmt.Fprintf(b, `<text class="%s" x="%.1f" y="%.1f"%s>%s</text>`+"\n", class, x, y, transform, html.EscapeString(s))
}
