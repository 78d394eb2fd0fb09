package scripted

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/script"
	"github.com/goroce/roce/script/library"
)

// Every script of the library plays as it should against this stack, with both reactions to losses. Time is simulated, except of
// programs that meet over TCP.
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
