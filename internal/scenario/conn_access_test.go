package scenario_test

import (
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/qp"
)

// TestConnAccess: the queue pair of a connection grants its peer the rights that the program chooses. By default these
// are writing, and the others if READs were negotiated.
func TestConnAccess(t *testing.T) {
	no, some := roce.ConnParam{ResponderResources: -1, InitiatorDepth: -1}, roce.ConnParam{ResponderResources: 4, InitiatorDepth: 4}
	for _, tt := range []struct {
		name           string
		dial           roce.DialConfig
		accept         roce.AcceptConfig
		client, server roce.Access
	}{
		{"defaults", roce.DialConfig{}, roce.AcceptConfig{}, roce.DefaultQPAccess, roce.DefaultQPAccess},
		{"the client wants none", roce.DialConfig{Param: no}, roce.AcceptConfig{}, roce.RemoteWrite, roce.RemoteWrite},
		{"the server grants none", roce.DialConfig{Param: some}, roce.AcceptConfig{Param: no}, roce.RemoteWrite, roce.RemoteWrite},
		{"one way", roce.DialConfig{Param: roce.ConnParam{ResponderResources: -1}}, roce.AcceptConfig{}, roce.RemoteWrite, roce.DefaultQPAccess},
		{"as said", roce.DialConfig{Access: new(roce.RemoteRead)}, roce.AcceptConfig{Access: new(roce.Access(0))}, roce.RemoteRead, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				server, client := newCouple(t, false).connect(tt.dial, tt.accept)
				for what, x := range map[*roce.Conn]roce.Access{client: tt.client, server: tt.server} {
					a, _ := what.QP().Query()
					if a.Access != x || a.State != qp.RTS {
						t.Errorf("%v in %v grants %v, want %v", what.LocalAddr(), a.State, a.Access, x)
					}
				}
			})
		})
	}
}
