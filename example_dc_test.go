package roce_test

import (
	"context"
	"fmt"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link/mem"
)

// One initiator sends to two targets, one after another. The program makes no connections.
func ExamplePD_CreateDCT() {
	ctx := context.Background()
	hub := mem.NewHub(mem.Config{})
	client := exampleNIC(hub, "10.0.0.1")
	defer client.Close()

	const key = 0x1234
	var targets []*roce.DCT
	var handles []*roce.AH
	for _, addr := range []string{"10.0.0.2", "10.0.0.3"} {
		server := exampleNIC(hub, addr)
		defer server.Close()
		pd := server.AllocPD()
		srq := must(pd.CreateSRQ(roce.SRQConfig{MaxWR: 8}))
		room := must(pd.RegMR(make([]byte, 64), roce.LocalWrite))
		do(srq.PostRecv(&roce.RecvWR{SG: []roce.SGE{room.SGE(0, 64)}}))
		targets = append(targets, must(pd.CreateDCT(roce.DCTConfig{CQ: must(server.CreateCQ(10)), SRQ: srq, Key: key})))
		handles = append(handles, must(client.CreateAH(ctx, roce.AHAttr{DGID: server.GIDs()[0]})))
	}

	q := must(client.AllocPD().CreateQP(roce.QPConfig{Type: roce.DCI, SendCQ: must(client.CreateCQ(10)), SignalAll: true}))
	do(q.ReadyDC(roce.Initiator{AV: handles[0], MTU: roce.MTU1024, Timeout: 14, RetryCnt: 7, RNRRetry: 7}))
	for i, t := range targets {
		do(q.PostSend(&roce.SendWR{Opcode: roce.Send, Inline: []byte("hello"), AH: handles[i], RemoteQPN: t.Num(), DCKey: key}))
	}
	for range targets {
		fmt.Println(must(q.SendCQ().Next(ctx)).Status)
	}
	for _, t := range targets {
		fmt.Println("received", must(t.Query().CQ.Next(ctx)).ByteLen, "bytes")
	}
	// Output:
	// SUCCESS
	// SUCCESS
	// received 5 bytes
	// received 5 bytes
}
