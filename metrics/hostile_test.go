package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/goroce/roce"
)

// TestAnyName: Linux permits almost any byte in the name of an interface. With such a name as label the collector works,
// or its registration fails; nothing panics.
func TestAnyName(t *testing.T) {
	for _, name := range []string{"", "a\"b\\c\n", "eth\xff"} {
		func() {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("%q: %v", name, r)
				}
			}()
			r := prometheus.NewPedanticRegistry()
			if err := r.Register(newCollector(name, func() roce.Counters { return roce.Counters{} }, prometheus.Labels{})); err != nil {
				return
			}
			if _, err := r.Gather(); err != nil {
				t.Errorf("%q: %v", name, err)
			}
		}()
	}
}
