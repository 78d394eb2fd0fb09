package machine

import (
	"reflect"
	"strings"
	"testing"

	"github.com/goroce/roce"
)

// --counters prints all drops of a device, whatever the reason.
func TestCountersOfDrops(t *testing.T) {
	var c roce.Counters
	set := func(v reflect.Value, n uint64) {
		for i := range v.NumField() {
			if f := v.Field(i); f.Kind() == reflect.Uint64 {
				f.SetUint(n + uint64(i))
			}
		}
	}
	const first = 700_000
	set(reflect.ValueOf(&c.Drops).Elem(), first)
	var out strings.Builder
	printCounters(&out, c)
	kinds := reflect.TypeOf(c.Drops)
	if lines := strings.Count(out.String(), " 70000"); lines != kinds.NumField() {
		t.Errorf("%d of %d reasons are printed:\n%s", lines, kinds.NumField(), out.String())
	}
	c = roce.Counters{PortErrors: 1, LostEvents: 1}
	c.Link.RxDrops, c.Link.RxErrors, c.Link.TxDrops, c.Link.TxErrors, c.Link.TxOversize = 1, 1, 1, 1, 1
	out.Reset()
	printCounters(&out, c)
	if lines := strings.Count(out.String(), "\n"); lines != 7 {
		t.Errorf("%d of 7 counters of what went wrong are printed:\n%s", lines, out.String())
	}
	c = roce.Counters{Shared: roce.ShareCounters{Sent: 1, Received: 2, Strays: 3, Dropped: 4}}
	out.Reset()
	printCounters(&out, c)
	for _, name := range []string{"share_tx_packets", "share_rx_packets", "share_rx_strays", "share_tx_drops"} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("%s is not printed:\n%s", name, out.String())
		}
	}
}
