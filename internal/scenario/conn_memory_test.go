package scenario_test

import (
	"testing"

	"github.com/goroce/roce"
)

// TestConnMemory: Close of a connection needs no second call. It closes regions of Conn.RegMR; the program's regions stay
// usable, and the domain closes with the last of them.
func TestConnMemory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCouple(t, false)
		_, client := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
		ours := ok(client.RegMR(make([]byte, 64), roce.LocalWrite))(t)
		theirs := ok(client.PD().RegMR(make([]byte, 64), roce.LocalWrite))(t)
		check(t, client.Close())
		wantErr(t, "the region of the connection", ours.Close(), roce.ErrClosed)
		wantErr(t, "Close again", client.Close(), roce.ErrClosed)
		_, err := client.RegMR(make([]byte, 64), 0)
		wantErr(t, "RegMR of a closed connection", err, roce.ErrClosed)
		_, err = client.PD().RegMR(make([]byte, 64), 0)
		wantErr(t, "RegMR of a domain that goes", err, roce.ErrClosed)
		check(t, theirs.Close())
		wantErr(t, "the domain", client.PD().Close(), roce.ErrClosed)
	})
}
