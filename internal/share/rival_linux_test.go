package share

import "testing"

// An address has a holder also while its processes find the next keeper.
func TestHolderBetweenKeepers(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	for range 20 {
		first, second := join(t, k, 1, d), join(t, k, 1, d)
		first.Close()
		if Holder(k) == "" {
			t.Fatal("nobody holds an address that a process shares")
		}
		second.Close()
	}
	if who := Holder(k); who != "" {
		t.Errorf("the holder of an address that no process has is %s", who)
	}
}
