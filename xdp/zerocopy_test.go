package xdp

import "testing"

func TestParseZeroCopy(t *testing.T) {
	for _, z := range []ZeroCopy{ZeroCopyAuto, ZeroCopyOff, ZeroCopyOn} {
		if got, ok := ParseZeroCopy(z.String()); got != z || !ok {
			t.Errorf("ParseZeroCopy(%q) = %v, %v", z, got, ok)
		}
	}
	for _, s := range []string{"", "ON", "copy", ZeroCopy(3).String()} {
		if got, ok := ParseZeroCopy(s); ok {
			t.Errorf("ParseZeroCopy(%q) = %v", s, got)
		}
	}
}
