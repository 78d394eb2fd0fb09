package report

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/plot"
	"github.com/goroce/roce/bench/internal/result"
)

// The colors of contenders.
var colorOf = map[string]int{"udp": 0, "xdp": 1, "raw": 2, "tcp": 3}

const grey = 4

// figures draws what there are figures for, by file name.
func figures(d *data) map[string]plot.Figure {
	all := make(map[string]plot.Figure)
	for _, pmtu := range d.pmtus {
		name := fmt.Sprintf("goodput-%d.svg", pmtu)
		all[name] = plot.Figure{Title: fmt.Sprintf("Goodput by message size, path MTU %d", pmtu),
			Subtitle: "one queue pair, one core a side; dashed: bare packets with CRC and copy, and iperf3", Panels: d.goodputPanels(pmtu)}
	}
	if p := d.ratePanels(); len(p) > 0 {
		all["messages.svg"] = plot.Figure{Title: "Messages a second by size", Subtitle: "one queue pair, batched posts, path MTU 1024; dashed: bare packets", Panels: p}
	}
	if p := d.latencyPanels(); len(p) > 0 {
		all["latency.svg"] = plot.Figure{Title: "64 bytes there and back", Subtitle: "dashed: bare packets by busy ends", Panels: p}
	}
	var p []plot.Panel
	for _, panel := range []func() (plot.Panel, bool){d.scalingPanel, d.lossPanel} {
		if one, ok := panel(); ok {
			p = append(p, one)
		}
	}
	if len(p) > 0 {
		all["scaling.svg"] = plot.Figure{Title: "Many queue pairs, and loss", Panels: p}
	}
	return all
}

func floats(v []int) (f []float64) {
	for _, n := range v {
		f = append(f, float64(n))
	}
	return f
}

// sizesAxis names every other size, lest they overlap.
func sizesAxis(sizes []int) plot.Axis {
	a := plot.Steps("message size", floats(sizes), func(v float64) string { return short(int(v)) })
	if len(a.Ticks) > 7 {
		for i := 1; i < len(a.Ticks)-1; i += 2 {
			a.Ticks[i].Label = ""
		}
	}
	return a
}

// short is a size without its unit's ending.
func short(n int) string {
	switch {
	case n >= 1<<20:
		return strconv.Itoa(n>>20) + "M"
	case n >= 1<<10:
		return strconv.Itoa(n>>10) + "K"
	}
	return strconv.Itoa(n)
}

func (d *data) goodputPanels(pmtu int) (panels []plot.Panel) {
	most := 0.0
	for _, op := range d.ops {
		p := plot.Panel{Title: op, X: sizesAxis(d.sizes)}
		for _, link := range d.links {
			s := plot.Series{Name: link, Color: colorOf[link]}
			for _, size := range d.sizes {
				if v := d.stream(link, op, size, pmtu).Goodput() / 1e9; v > 0 {
					s.Points = append(s.Points, plot.Point{X: float64(size), Y: v})
					most = max(most, v)
				}
			}
			p.Series = append(p.Series, s)
			if v := d.blast(link, pmtu, pmtu).Goodput() / 1e9; v > 0 {
				p.Series = append(p.Series, plot.Level("bare "+link, colorOf[link], v))
				most = max(most, v)
			}
		}
		for i, how := range []string{"offloads", "plain"} {
			if v := d.tcp(how, pmtu).Goodput() / 1e9; v > 0 {
				p.Series = append(p.Series, plot.Level([]string{"TCP", "TCP without offloads"}[i], []int{colorOf["tcp"], grey}[i], v))
				most = max(most, v)
			}
		}
		panels = append(panels, p)
	}
	for i := range panels {
		panels[i].Y = plot.Linear("Gb/s", most)
	}
	return panels
}

func (d *data) ratePanels() (panels []plot.Panel) {
	sizes := slices.DeleteFunc(slices.Clone(d.sizes), func(n int) bool { return n > 64<<10 })
	if len(sizes) == 0 || !slices.Contains(d.pmtus, smallPMTU) {
		return nil
	}
	least, most := 1.0, 1.0
	for _, op := range d.ops {
		p := plot.Panel{Title: op, X: sizesAxis(sizes)}
		for _, link := range d.links {
			s := plot.Series{Name: link, Color: colorOf[link]}
			for _, size := range sizes {
				if v := d.stream(link, op, size, smallPMTU).Rate() / 1e6; v > 0 {
					s.Points = append(s.Points, plot.Point{X: float64(size), Y: v})
					least, most = min(least, v), max(most, v)
				}
			}
			p.Series = append(p.Series, s)
			if v := d.blast(link, smallSize, smallPMTU).Rate() / 1e6; v > 0 {
				p.Series = append(p.Series, plot.Series{Name: "bare " + link + ", 64 B", Color: colorOf[link], Dashed: true,
					Points: []plot.Point{{X: float64(sizes[0]), Y: v}, {X: float64(sizes[min(1, len(sizes)-1)]), Y: v}}})
				most = max(most, v)
			}
		}
		panels = append(panels, p)
	}
	for i := range panels {
		panels[i].Y = plot.Log("million messages a second", least, most)
	}
	return panels
}

func (d *data) latencyPanels() (panels []plot.Panel) {
	top := harness.Quantiles[len(harness.Quantiles)-1]
	least, most := 1e9, 0.0
	line := func(name string, color int, dashed bool, p *result.Point) plot.Series {
		s := plot.Series{Name: name, Color: color, Dashed: dashed}
		for i, q := range harness.Quantiles {
			v := p.Median(func(m harness.Measure) float64 {
				if m.Latency == nil || i >= len(m.Latency.Quantiles) {
					return 0
				}
				return m.Latency.Quantiles[i]
			})
			if v > 0 {
				s.Points = append(s.Points, plot.Point{X: q, Y: v})
				least, most = min(least, v), max(most, v)
			}
		}
		return s
	}
	for _, wait := range []bool{false, true} {
		p := plot.Panel{Title: "polled", X: plot.Percentiles("percentile", top)}
		if wait {
			p.Title = "background"
		}
		for _, link := range d.links {
			p.Series = append(p.Series, line(link, colorOf[link], false, d.latency(link, wait)))
			if !wait {
				p.Series = append(p.Series, line("bare "+link, colorOf[link], true, d.ping(link, false)))
			}
		}
		if wait {
			p.Series = append(p.Series, line("TCP, net.Conn", colorOf["tcp"], false, d.tcpLatency()))
		}
		if slices.ContainsFunc(p.Series, func(s plot.Series) bool { return len(s.Points) > 0 }) {
			panels = append(panels, p)
		}
	}
	for i := range panels {
		panels[i].Y = plot.Log("µs", least, most)
	}
	return panels
}

func (d *data) scalingPanel() (p plot.Panel, ok bool) {
	p = plot.Panel{Title: "SEND 64 B, 16 to each in turn", X: plot.Steps("queue pairs", floats(d.qps), func(v float64) string { return strconv.Itoa(int(v)) })}
	most := 0.0
	for _, link := range d.links {
		s := plot.Series{Name: link, Color: colorOf[link]}
		for _, n := range d.qps {
			if v := d.scaling(link, n).Rate() / 1e6; v > 0 {
				s.Points = append(s.Points, plot.Point{X: float64(n), Y: v})
				most = max(most, v)
			}
		}
		p.Series = append(p.Series, s)
	}
	p.Y = plot.Linear("million messages a second", most)
	return p, most > 0
}

func (d *data) lossPanel() (p plot.Panel, ok bool) {
	rates := result.Values(d.Run, result.Loss, func(s harness.Spec) float64 { return s.Loss })
	var names []string
	for _, r := range rates {
		names = append(names, fmt.Sprintf("%g %%", 100*r))
	}
	p = plot.Panel{Title: "WRITE 1 MiB, path MTU 4096", X: plot.Names("packets lost", names)}
	most := 0.0
	for _, link := range d.links {
		s := plot.Series{Name: link, Color: colorOf[link]}
		for i, r := range rates {
			if v := d.loss(link, r).Goodput() / 1e9; v > 0 {
				s.Points = append(s.Points, plot.Point{X: float64(i), Y: v})
				most = max(most, v)
			}
		}
		p.Series = append(p.Series, s)
	}
	p.Y = plot.Linear("Gb/s", most)
	return p, most > 0
}
