package recent_test

import (
	"slices"
	"testing"

	"github.com/goroce/roce/internal/recent"
	"github.com/goroce/roce/mono"
)

// thing is what the tests keep.
type thing struct {
	recent.Entry[*thing]
	name string
}

// names takes the list apart, the oldest thing first.
func names(l *recent.List[*thing]) (all []string) {
	for x, _, ok := l.Oldest(); ok; x, _, ok = l.Oldest() {
		all = append(all, x.name)
		l.Remove(&x.Entry)
	}
	return all
}

func TestOrder(t *testing.T) {
	const slack = 10
	l := recent.List[*thing]{Slack: slack}
	if x, _, ok := l.Oldest(); ok {
		t.Fatalf("an empty list has %v", x)
	}
	things := map[string]*thing{}
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		things[name] = &thing{name: name}
		l.Add(mono.Time(i), &things[name].Entry, things[name])
	}
	l.Touch(5, &things["a"].Entry)  // too short after its last use to count
	l.Touch(11, &things["b"].Entry) // the newest now
	l.Renew(12, &things["c"].Entry)
	l.Remove(&things["d"].Entry)
	if x, used, ok := l.Oldest(); !ok || x.name != "a" || used != 0 || things["b"].Used() != 11 {
		t.Errorf("the oldest is %v of %v, %v; b was used at %v", x, used, ok, things["b"].Used())
	}
	if got, want := names(&l), []string{"a", "e", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	l.Add(20, &things["d"].Entry, things["d"]) // again, after it was removed
	if got := names(&l); !slices.Equal(got, []string{"d"}) {
		t.Errorf("%v, want d", got)
	}
}
