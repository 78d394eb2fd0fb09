package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/roce"
)

var (
	metricName = regexp.MustCompile(`\broce_\w+`)
	labelName  = regexp.MustCompile(`(\w+)=~?"|\{\{(\w+)\}\}`)
	eventNames = regexp.MustCompile(`counter=~?"([^"]+)"`)
)

// All metrics, labels and counters in the dashboard exist.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("grafana/roce.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title, Description string
			Targets            []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	labels := map[string][]string{"roce_device_info": {"guid", "version"}}
	for _, f := range families {
		labels[f.name] = f.labels
	}
	var events []string
	protocolEvents(&roce.Counters{}, func(_ uint64, labels ...string) { events = append(events, labels[0]) })
	if len(d.Panels) < 10 {
		t.Errorf("%d panels", len(d.Panels))
	}
	for _, p := range d.Panels {
		if p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q has no title, description or target", p.Title)
		}
		for _, target := range p.Targets {
			names := metricName.FindAllString(target.Expr, -1)
			if len(names) == 0 {
				t.Errorf("%s: no metric in %s", p.Title, target.Expr)
			}
			for _, n := range names {
				known, ok := labels[n]
				if !ok {
					t.Errorf("%s: there is no metric %s", p.Title, n)
				}
				for _, m := range labelName.FindAllStringSubmatch(target.Expr+target.LegendFormat, -1) {
					if l := m[1] + m[2]; l != "device" && !slices.Contains(known, l) {
						t.Errorf("%s: %s has no label %s", p.Title, n, l)
					}
				}
			}
			for _, m := range eventNames.FindAllStringSubmatch(target.Expr, -1) {
				for e := range strings.SplitSeq(m[1], "|") {
					if !slices.Contains(events, e) {
						t.Errorf("%s: there is no counter %s", p.Title, e)
					}
				}
			}
		}
	}
}
