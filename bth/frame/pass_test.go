package frame_test

import (
	"testing"

	"github.com/goroce/roce/bth/frame"
)

// TestPass: a packet that Next accepts keeps the pass of the previous packet; other packets do not
// have it.
func TestPass(t *testing.T) {
	path, err := frame.NewPath(frame.PathConfig{Src: gid(t, "10.0.0.1"), Dst: gid(t, "10.0.0.2")})
	if err != nil {
		t.Fatal(err)
	}
	e, bodies := path.Envelope(), segments(path, 0, 2)
	other := e
	var p frame.Packet
	var pass, another frame.Pass
	start := func() {
		t.Helper()
		if err := p.ParseBody(bodies[0], &e, 0); err != nil {
			t.Fatal(err)
		}
		if p.Has(&pass) {
			t.Fatal("a packet that was just parsed has a pass")
		}
		p.SetPass(&pass)
		if !p.Has(&pass) || p.Has(&another) {
			t.Fatal("a packet lacks the pass that it was given, or has another one")
		}
	}
	start()
	if !p.Next(bodies[1], &e, 1) || !p.Has(&pass) {
		t.Error("the next packet has no pass")
	}
	start()
	if p.Next(bodies[1], &other, 1) {
		t.Error("a packet of another envelope is taken for the next")
	}
	if err := p.ParseBody(bodies[1], &other, 1); err != nil || p.Has(&pass) {
		t.Errorf("a packet of another envelope has the pass, %v", err)
	}
	start()
	if err := p.Parse(bodies[1], frame.LayoutUDP); err != nil || p.Has(&pass) {
		t.Errorf("a packet without an envelope has the pass, %v", err)
	}
	start()
	pass.Revoke()
	if p.Has(&pass) {
		t.Error("a packet has a pass that was revoked")
	}
	start()
}
