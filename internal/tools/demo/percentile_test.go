package demo

import (
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	hundred := make(samples, 100)
	for i := range hundred {
		hundred[i] = time.Duration(100 - i)
	}
	for _, tt := range []struct {
		s    samples
		p    int
		want time.Duration
	}{
		{nil, 50, 0},
		{samples{7}, 50, 7},
		{samples{7}, 99, 7},
		{samples{3, 1, 2}, 50, 2},
		{samples{4, 3, 1, 2}, 50, 2},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
	} {
		if got := tt.s.percentile(tt.p); got != tt.want {
			t.Errorf("percentile %d of %v = %v, want %v", tt.p, tt.s, got, tt.want)
		}
	}
}
