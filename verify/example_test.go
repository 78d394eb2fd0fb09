package verify_test

import (
	"context"
	"fmt"

	"github.com/goroce/roce/verify"
)

// This capture has requests that break rules on purpose.
func ExampleFiles() {
	r, err := verify.Files(context.Background(), []string{"../testdata/pcaps/rxe612_run2_v6_rsocket_cmR.pcap"}, verify.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Failure() {
			fmt.Println(f)
		}
	}
	// Output:
	// error order-message (IBTA 9.7.4.1.2), frame 304, 307, 10.77.0.2 > 10.77.0.1 qp 0x22: RC SEND_ONLY comes before the end of the message that began there.
	// error length-write (IBTA 9.7.4.1.6), frame 337, 340, 10.77.0.2 > 10.77.0.1 qp 0x23: The packets of the WRITE carry 876 bytes less than its RETH says.
	// error length-write (IBTA 9.7.4.1.6), frame 372, 10.77.0.2 > 10.77.0.1 qp 0x24: The packets of the WRITE carry 8 bytes more than its RETH says.
}
