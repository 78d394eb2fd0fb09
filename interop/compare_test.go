//go:build linux

package main

import "testing"

func TestPerSecond(t *testing.T) {
	const table = `destroying id
step              total ms     max ms     min us  us / conn
create id    :        5.47       0.17      84.00     109.40
connect      :       50.00      49.00    1100.00    1000.00
disconnect   :       10.00       9.00     100.00     200.00
destroy      :        1.00       0.10      10.00      20.00
`
	if got, err := perSecond(table, 50); err != nil || got != "1000/5000" {
		t.Errorf("%q, %v", got, err)
	}
	for _, bad := range []string{"", "connect : 5.0\n", "connect : 0.00\ndisconnect : 0.00\n"} {
		if got, err := perSecond(bad, 50); err == nil {
			t.Errorf("%q is %q", bad, got)
		}
	}
}
