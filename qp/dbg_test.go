package qp_test

import (
	"fmt"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/qp"
)

func TestDbg(t *testing.T) {
	r := lossyLink{op: qp.Write, message: 1 << 20, total: 32 << 20, mtu: bth.MTU1024, loss: 0.05, seed: 1, repair: true, repairB: true}.run(t)
	fmt.Printf("%v\nREQ %+v\nRSP %+v\n", r.rate.String(), r.requester, r.responder)
}
