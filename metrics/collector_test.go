package metrics

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// number gives every counter in v, a struct or array of counters, a different number.
func number(v reflect.Value, next *uint64) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			number(v.Field(i), next)
		}
	case reflect.Array:
		for i := range v.Len() {
			number(v.Index(i), next)
		}
	case reflect.Uint64:
		*next++
		v.SetUint(*next)
	}
}

// gather registers collectors and returns how often each value occurs in the counters.
func gather(t *testing.T, collectors ...prometheus.Collector) map[float64]int {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[float64]int{}
	for _, f := range all {
		for _, m := range f.Metric {
			if m.Counter != nil {
				seen[m.Counter.GetValue()]++
			}
		}
	}
	return seen
}

// Each counter of a device is in exactly one sample. The test finds counters that are added later, too.
func TestEveryCounter(t *testing.T) {
	var c roce.Counters
	n := uint64(1000) // no other sample has such a value
	number(reflect.ValueOf(&c).Elem(), &n)
	seen := gather(t, newCollector("a", func() roce.Counters { return c }, prometheus.Labels{}))
	for v := uint64(1001); v <= n; v++ {
		if seen[float64(v)] != 1 {
			t.Errorf("counter %d of %d is in %d samples", v-1000, n-1000, seen[float64(v)])
		}
	}
	if len(seen) != int(n-1000) {
		t.Errorf("%d samples of %d counters", len(seen), n-1000)
	}
}

// Names and help texts follow the conventions of Prometheus.
func TestConventions(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(newCollector("a", func() roce.Counters { return roce.Counters{} }, prometheus.Labels{}))
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// One registry can have two devices, and a scrape still reads a closed one.
func TestDevices(t *testing.T) {
	hub := mem.NewHub(mem.Config{})
	open := func(addr string) *roce.Device {
		ip := netip.MustParseAddr(addr)
		port, err := hub.Port(addr, roce.DerivedMAC(ip))
		if err != nil {
			t.Fatal(err)
		}
		d, err := roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{ip}})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	a, b := open("10.0.0.1"), open("10.0.0.2")
	defer b.Close()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(NewCollector("a", a), NewCollector("b", b))
	if n, err := testutil.GatherAndCount(r, "roce_device_info", "roce_link_up"); err != nil || n != 4 {
		t.Errorf("%d samples, %v", n, err)
	}
	if err := r.Register(NewCollector("b", b)); err == nil {
		t.Error("two collectors of one name were registered")
	}
}
