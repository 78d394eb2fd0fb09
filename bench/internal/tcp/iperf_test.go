package tcp

import (
	"strings"
	"testing"
)

func TestParseIPerf(t *testing.T) {
	m, err := parseIPerf([]byte(`{"start":{},"end":{"sum_sent":{"seconds":1.0,"bytes":4000000000,"retransmits":12},"sum_received":{"seconds":1.25,"bytes":3125000000}}}`))
	if err != nil || m.Goodput() != 20e9 || m.Retrans != 12 {
		t.Errorf("%+v, %v", m, err)
	}
	for b, want := range map[string]string{
		"":                                "report",
		`{"error":"unable to connect"}`:   "unable to connect",
		`{"end":{"sum_received":{}}}`:     "nothing",
		`{"end":{"sum_received":"many"}}`: "report",
	} {
		if _, err := parseIPerf([]byte(b)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", b, err, want)
		}
	}
}
