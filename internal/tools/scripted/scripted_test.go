package scripted

import (
	"strings"
	"testing"

	"github.com/goroce/roce/script"
	"github.com/goroce/roce/script/library"
)

// Every script of the library plays as it should against this stack.
func TestLibrary(t *testing.T) {
	for _, s := range library.All() {
		t.Run(strings.ReplaceAll(s.Name, "/", "."), func(t *testing.T) {
			if r := RunSelf(t.Context(), s, script.Options{}); r.Err != nil {
				var b strings.Builder
				r.WriteText(&b)
				t.Errorf("%s", b.String())
			}
		})
	}
}
