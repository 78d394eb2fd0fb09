package ladder

import (
	"strings"
	"testing"
	"time"
)

func TestDraw(t *testing.T) {
	const a, b, c = "10.0.0.1", "10.0.0.2", "10.0.0.3"
	for _, tt := range []struct {
		name  string
		steps []Step
		want  string
	}{
		{"empty", nil, ""},
		{"two hosts", []Step{
			{From: a, To: b, Label: "READ_REQUEST psn 0x12"},
			{At: 41 * time.Microsecond, From: b, To: a, Label: "READ_RESPONSE_ONLY", Note: "again"},
			{At: 1500 * time.Millisecond, From: a, To: b, Label: "SEND", Lost: true},
			{At: 2 * time.Second, From: b, To: a, Label: "ACK", Lost: true},
		}, `
              10.0.0.1                      10.0.0.2
    0.000000      |-- READ_REQUEST psn 0x12 --->|
    0.000041      |<-- READ_RESPONSE_ONLY ------|  again
    1.500000      |-- SEND --------------------X|
    2.000000      |X-- ACK ---------------------|
`},
		{"three hosts", []Step{
			{From: a, To: b, Label: "one"},
			{From: b, To: c, Label: "two"},
			{From: c, To: a, Label: "three"},
			{From: c, To: c, Label: "self"},
		}, `
              10.0.0.1                 10.0.0.2                 10.0.0.3
    0.000000      |-- one ---------------->|                        |
    0.000000      |                        |-- two ---------------->|
    0.000000      |<-- three ---------------------------------------|
    0.000000      |                        |                        |-> self
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got strings.Builder
			if err := Draw(&got, tt.steps); err != nil {
				t.Fatal(err)
			}
			if want := strings.TrimPrefix(tt.want, "\n"); got.String() != want {
				t.Errorf("got\n%s\nwant\n%s", got.String(), want)
			}
		})
	}
}

func TestDrawCutsLongLabels(t *testing.T) {
	var got strings.Builder
	if err := Draw(&got, []Step{{From: "a", To: "b", Label: strings.Repeat("é", 300)}}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(got.String()) {
		if n := len([]rune(line)); n > timeWidth+maxGap+20 {
			t.Errorf("line of %d characters: %s", n, line)
		}
	}
	if !strings.Contains(got.String(), "é… --") {
		t.Errorf("cut label not marked:\n%s", got.String())
	}
}
