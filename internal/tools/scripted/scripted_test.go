package scripted

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/script"
	"github.com/goroce/roce/script/library"
)

// Each script of the library passes against this stack, with both kinds of loss recovery. Time is simulated, except for programs
// that use a TCP connection.
func TestLibrary(t *testing.T) {
	for _, s := range library.All() {
		t.Run(strings.ReplaceAll(s.Name, "/", "."), func(t *testing.T) {
			play := func(t *testing.T) {
				for _, recovery := range []roce.Recovery{roce.RecoverGoBack, roce.RecoverAll} {
					if r := runSelf(t.Context(), s, script.Options{}, recovery); r.Err != nil {
						var b strings.Builder
						r.WriteText(&b)
						t.Errorf("recovery %v: %s", recovery, b.String())
					}
				}
			}
			if strings.HasPrefix(s.Peer, "ib_") {
				play(t)
			} else {
				synctest.Test(t, play)
			}
		})
	}
}
