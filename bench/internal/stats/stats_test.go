package stats

import "testing"

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		v    []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := Median(tt.v); got != tt.want {
			t.Errorf("Median(%v) = %v, want %v", tt.v, got, tt.want)
		}
	}
	v := []float64{3, 1, 2}
	Median(v)
	if v[0] != 3 {
		t.Errorf("Median has changed its argument: %v", v)
	}
}

func TestQuantile(t *testing.T) {
	v := make([]uint32, 1000)
	for i := range v {
		v[i] = uint32(i + 1)
	}
	for q, want := range map[float64]uint32{0: 1, 0.001: 1, 0.5: 500, 0.99: 990, 0.999: 999, 0.9999: 1000, 1: 1000} {
		if got := Quantile(v, q); got != want {
			t.Errorf("Quantile(%v) = %d, want %d", q, got, want)
		}
	}
	if got := Quantile([]uint32(nil), 0.5); got != 0 {
		t.Errorf("Quantile of nothing = %d", got)
	}
}

func TestRatio(t *testing.T) {
	for _, tt := range [][3]float64{{6, 3, 2}, {0, 3, 0}, {3, 0, 0}, {-1, 2, 0}} {
		if got := Ratio(tt[0], tt[1]); got != tt[2] {
			t.Errorf("Ratio(%v, %v) = %v, want %v", tt[0], tt[1], got, tt[2])
		}
	}
}
