package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/plot"
	"github.com/goroce/roce/bench/internal/result"
)

// colorOf has the color of each contender.
var colorOf = map[string]int{"udp": 0, "xdp": 1, "raw": 2, "tcp": 3}

const grey = 4

// figures draws the figures for which there are values, by file name.
func figures(d *data) map[string]plot.Figure {
	all := make(map[string]plot.Figure)
	add := func(name, title, subtitle string, panels []plot.Panel) {
		if len(panels) > 0 {
			all[name] = plot.Figure{Title: title, Subtitle: subtitle, Panels: panels}
		}
	}
	for _, pmtu := range d.pmtus {
		all[fmt.Sprintf("goodput-%d.svg", pmtu)] = plot.Figure{Title: fmt.Sprintf("Goodput by message size, path MTU %d", pmtu),
			Subtitle: "one queue pair, one core a side; dashed: bare packets with CRC and copy, and iperf3", Panels: d.goodputPanels(pmtu)}
	}
	add("messages.svg", "Messages a second by size", "one queue pair, batched posts, path MTU 1024; dashed: bare packets", d.ratePanels())
	add("latency.svg", "64 bytes there and back", "dashed: bare packets by busy ends", d.latencyPanels())
	add("scaling.svg", "Many queue pairs, and loss", "", append(d.scalingPanel(), d.lossPanel()...))
	return all
}

// extent is the range of the values of some panels.
type extent struct{ least, most float64 }

// line makes a line of the values above 0 of y, by the index of each place, and widens the
// extent to them.
func (e *extent) line(name string, color int, places []float64, y func(i int) float64) plot.Series {
	s := plot.Series{Name: name, Color: color}
	for i, x := range places {
		if v := y(i); v > 0 {
			s.Points = append(s.Points, plot.Point{X: x, Y: v})
			e.least, e.most = min(e.least, v), max(e.most, v)
		}
	}
	return s
}

// level adds a dashed line over the whole panel if v is above 0.
func (e *extent) level(p *plot.Panel, name string, color int, v float64) {
	if v > 0 {
		p.Series = append(p.Series, plot.Level(name, color, v))
		e.most = max(e.most, v)
	}
}

// withY gives all panels the same vertical axis.
func withY(panels []plot.Panel, y plot.Axis) []plot.Panel {
	for i := range panels {
		panels[i].Y = y
	}
	return panels
}

func floats(v []int) (f []float64) {
	for _, n := range v {
		f = append(f, float64(n))
	}
	return f
}

// sizesAxis makes an axis of message sizes. If there are many, every second has a label.
func sizesAxis(sizes []int) plot.Axis {
	a := plot.Steps("message size", floats(sizes), func(v float64) string { return strings.TrimRight(result.SizeName(int(v), ""), "iB") })
	if len(a.Ticks) > 7 {
		for i := 1; i < len(a.Ticks)-1; i += 2 {
			a.Ticks[i].Label = ""
		}
	}
	return a
}

func (d *data) goodputPanels(pmtu int) (panels []plot.Panel) {
	var e extent
	for _, op := range d.ops {
		p := plot.Panel{Title: op, X: sizesAxis(d.sizes)}
		for _, link := range d.links {
			p.Series = append(p.Series, e.line(link, colorOf[link], floats(d.sizes), func(i int) float64 {
				return d.stream(link, op, d.sizes[i], pmtu).Goodput() / 1e9
			}))
			e.level(&p, "bare "+link, colorOf[link], d.blast(link, pmtu, pmtu, false).Goodput()/1e9)
		}
		e.level(&p, "TCP", colorOf["tcp"], d.tcp("offloads", pmtu).Goodput()/1e9)
		e.level(&p, "TCP without offloads", grey, d.tcp("plain", pmtu).Goodput()/1e9)
		panels = append(panels, p)
	}
	return withY(panels, plot.Linear("Gb/s", e.most))
}

func (d *data) ratePanels() (panels []plot.Panel) {
	sizes := slices.DeleteFunc(slices.Clone(d.sizes), func(n int) bool { return n > 64<<10 })
	if len(sizes) == 0 || !slices.Contains(d.pmtus, smallPMTU) {
		return nil
	}
	e := extent{1, 1}
	for _, op := range d.ops {
		p := plot.Panel{Title: op, X: sizesAxis(sizes)}
		for _, link := range d.links {
			p.Series = append(p.Series, e.line(link, colorOf[link], floats(sizes), func(i int) float64 {
				return d.stream(link, op, sizes[i], smallPMTU).Rate() / 1e6
			}))
			if v := d.blast(link, result.SmallSize, smallPMTU, false).Rate() / 1e6; v > 0 {
				p.Series = append(p.Series, plot.Series{Name: "bare " + link + ", 64 B", Color: colorOf[link], Dashed: true,
					Points: []plot.Point{{X: float64(sizes[0]), Y: v}, {X: float64(sizes[min(1, len(sizes)-1)]), Y: v}}})
				e.most = max(e.most, v)
			}
		}
		panels = append(panels, p)
	}
	return withY(panels, plot.Log("million messages a second", e.least, e.most))
}

func (d *data) latencyPanels() (panels []plot.Panel) {
	e := extent{1e9, 0}
	line := func(name string, color int, p *result.Point) plot.Series {
		return e.line(name, color, harness.Quantiles, func(i int) float64 {
			return quantile(p, func(l *harness.Latency) float64 {
				if i >= len(l.Quantiles) {
					return 0
				}
				return l.Quantiles[i]
			})
		})
	}
	for _, wait := range []bool{false, true} {
		p := plot.Panel{Title: "polled", X: plot.Percentiles("percentile", harness.Quantiles[len(harness.Quantiles)-1])}
		if wait {
			p.Title = "background"
		}
		for _, link := range d.links {
			p.Series = append(p.Series, line(link, colorOf[link], d.latency(link, wait)))
			if !wait {
				bare := line("bare "+link, colorOf[link], d.ping(link, "", false))
				bare.Dashed = true
				p.Series = append(p.Series, bare)
			}
		}
		if wait {
			p.Series = append(p.Series, line("TCP, net.Conn", colorOf["tcp"], d.tcpLatency()))
		}
		if slices.ContainsFunc(p.Series, func(s plot.Series) bool { return len(s.Points) > 0 }) {
			panels = append(panels, p)
		}
	}
	return withY(panels, plot.Log("µs", e.least, e.most))
}

// byLink makes a panel with a line for each link, or none if there are no values. y is the value
// for a link at the place with an index.
func (d *data) byLink(title, unit string, x plot.Axis, places []float64, y func(link string, i int) float64) []plot.Panel {
	var e extent
	p := plot.Panel{Title: title, X: x}
	for _, link := range d.links {
		p.Series = append(p.Series, e.line(link, colorOf[link], places, func(i int) float64 { return y(link, i) }))
	}
	if e.most == 0 {
		return nil
	}
	return withY([]plot.Panel{p}, plot.Linear(unit, e.most))
}

func (d *data) scalingPanel() []plot.Panel {
	x := plot.Steps("queue pairs", floats(d.qps), func(v float64) string { return strconv.Itoa(int(v)) })
	return d.byLink("SEND 64 B, 16 to each in turn", "million messages a second", x, floats(d.qps), func(link string, i int) float64 {
		return d.scaling(link, d.qps[i]).Rate() / 1e6
	})
}

func (d *data) lossPanel() []plot.Panel {
	rates := result.Values(d.Run, result.Loss, func(s harness.Spec) float64 { return s.Loss })
	var names []string
	var places []float64
	for i, r := range rates {
		names, places = append(names, fmt.Sprintf("%g %%", 100*r)), append(places, float64(i))
	}
	return d.byLink("WRITE 1 MiB, path MTU 4096", "Gb/s", plot.Names("packets lost", names), places, func(link string, i int) float64 {
		return d.loss(link, "WRITE", rates[i], false).Goodput() / 1e9
	})
}
