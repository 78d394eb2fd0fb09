package verbs

import (
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// TestInlineGranted: a queue with room for elements has room for inline data, and more if the program asks for
// it.
func TestInlineGranted(t *testing.T) {
	e := newEnd(t, device0)
	for _, c := range []struct{ sge, asked, want uint32 }{{1, 0, 16}, {4, 20, 64}, {1, 100, 100}, {0, 0, 8}} {
		init := e.config(roce.RC)
		init.Cap = abi.Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: c.sge, MaxRecvSGE: 1, MaxInlineData: c.asked}
		e.create(init)
		init.Cap = abi.Caps{}
		var a abi.QPAttr
		if err := QueryQP(e.qp, &a, &init.Cap); err != nil || init.Cap.MaxInlineData != c.want {
			t.Errorf("%d elements, %d bytes asked for: granted %d, %v; want %d", c.sge, c.asked, init.Cap.MaxInlineData, err, c.want)
		}
		ok(t, DestroyQP(e.qp))
	}
}
