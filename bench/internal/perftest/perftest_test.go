package perftest

import "testing"

// Rows as perftest and rocectl print them.
func TestRead(t *testing.T) {
	for _, tt := range []struct {
		size    int
		latency bool
		output  string
		want    Row
	}{
		{65536, false, " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 65536      49100            0.00               12.87  \t\t   0.024550\n---\n",
			Row{Iters: 49100, Gbits: 12.87, Mega: 0.02455}},
		{64, false, " 64         2000000          0.00               0.51  \t\t   1.000123\n", Row{Iters: 2000000, Gbits: 0.51, Mega: 1.000123}},
		{64, false, " 64         2000           0.000000            0.051000            0.100012\n", Row{Iters: 2000, Gbits: 0.051, Mega: 0.100012}},
		{64, true, " 64      3000          8.10           30.20        9.00     \t       9.30     \t0.50   \t\t12.00  \t\t25.00  \n",
			Row{Iters: 3000, Typical: 9, P99: 12, P999: 25}},
		{64, true, " 64      3000          49.63          266294.27      70.36    \t       2801.28     \t-nan   \t\t61353.65 \t\t180839.16\n",
			Row{Iters: 3000, Typical: 70.36, P99: 61353.65, P999: 180839.16}},
	} {
		if got, err := Read(tt.output, tt.size, tt.latency); err != nil || got != tt.want {
			t.Errorf("%q: %+v, %v; want %+v", tt.output, got, err, tt.want)
		}
	}
	for _, output := range []string{"", " 65536 what", " 64 1 2 3 4\n", " 65536 1 2 3\n", " 65536 x 1 2 3\n", " 65536 1 2 3 x\n", " 65536 1 2 3 inf\n"} {
		if r, err := Read(output, 65536, false); err == nil {
			t.Errorf("%q: %+v", output, r)
		}
	}
}
