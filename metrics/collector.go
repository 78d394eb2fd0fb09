// Package metrics exports the counters of devices to Prometheus. It is a separate module, so that programs that
// do not use it do not depend on Prometheus. docs/watching.md lists the metrics.
//
//	registry.MustRegister(metrics.NewCollector("roce0", device))
package metrics

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/goroce/roce"
)

// Collector is a [prometheus.Collector] of one device. A scrape reads the counters of the device once; between
// scrapes the collector does nothing. After the device is closed its counters do not change, until the program
// unregisters the collector.
type Collector struct {
	counters func() roce.Counters
	descs    []*prometheus.Desc // of families, in their order
	info     prometheus.Metric
}

// NewCollector returns a collector of a device. The name is the label "device" of all metrics, and must
// differ from those of other devices of the same registry.
func NewCollector(name string, d *roce.Device) *Collector {
	attr := d.Query()
	return newCollector(name, d.Counters, prometheus.Labels{
		"guid": fmt.Sprintf("%016x", attr.GUID), "version": attr.FWVer,
	})
}

func newCollector(name string, counters func() roce.Counters, info prometheus.Labels) *Collector {
	name = strings.ToValidUTF8(name, "\uFFFD") // Linux permits any byte in the name of an interface
	labels := prometheus.Labels{"device": name}
	c := &Collector{counters: counters}
	for _, f := range families {
		c.descs = append(c.descs, prometheus.NewDesc(f.name, f.help, f.labels, labels))
	}
	info["device"] = name
	c.info = prometheus.MustNewConstMetric(
		prometheus.NewDesc("roce_device_info", "The device: its GUID and the version of the module. The value is 1.", nil, info),
		prometheus.GaugeValue, 1)
	return c
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		out <- d
	}
	out <- c.info.Desc()
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	now := c.counters()
	for i, f := range families {
		f.samples(&now, func(v uint64, labels ...string) {
			out <- prometheus.MustNewConstMetric(c.descs[i], f.kind, float64(v), labels...)
		})
	}
	out <- c.info
}
