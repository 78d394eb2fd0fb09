package settings_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/roce/internal/settings"
)

// TestComplete: 0 becomes the default; the error of a number outside its bounds names the number.
func TestComplete(t *testing.T) {
	for _, c := range []struct {
		value, want int
		ok          bool
	}{{0, 7, true}, {2, 2, true}, {9, 9, true}, {1, 0, false}, {10, 0, false}, {-1, 0, false}} {
		v := c.value
		err := settings.Complete("open", settings.Number{Name: "Config.Depth", Value: &v, Default: 7, Least: 2, Most: 9})
		switch {
		case c.ok && (err != nil || v != c.want):
			t.Errorf("%d becomes %d, %v, want %d", c.value, v, err, c.want)
		case !c.ok && (!errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "Config.Depth")):
			t.Errorf("%d: %v", c.value, err)
		}
	}
}
