package roce_test

import (
	"context"
	"fmt"

	"github.com/goroce/roce"
)

// One connection reaches two services of a server. Each service has a shared receive
// queue in the XRC domain. Each work request of the client names one of these queues.
func ExampleDevice_OpenXRCD() {
	ctx := context.Background()
	server, client := twoNICs()
	defer server.Close()
	defer client.Close()

	domain := must(server.OpenXRCD(roce.XRCDConfig{}))
	service := func() *roce.SRQ {
		pd := server.AllocPD()
		queue := must(pd.CreateSRQ(roce.SRQConfig{MaxWR: 7, XRCD: domain, CQ: must(server.CreateCQ(15))}))
		mr := must(pd.RegMR(make([]byte, 64), roce.LocalWrite))
		must(0, queue.PostRecv(&roce.RecvWR{SG: []roce.SGE{mr.SGE(0, 64)}}))
		return queue
	}
	mail, files := service(), service()

	// The two ends of the connection, connected without the connection manager.
	target := must(domain.CreateQP(roce.QPConfig{}))
	done := must(client.CreateCQ(15))
	initiator := must(client.AllocPD().CreateQP(roce.QPConfig{Type: roce.XRCSend, SendCQ: done}))
	join := func(q *roce.QP, to *roce.Device, peer *roce.QP) {
		must(0, q.Init(0, 0))
		must(0, q.Connect(ctx, roce.Peer{AHAttr: roce.AHAttr{DGID: to.GIDs()[0]}, QPN: peer.Num(), MTU: client.Query().PathMTU,
			Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12}, 0))
	}
	join(target, client, initiator)
	join(initiator, server, target)

	for _, queue := range []*roce.SRQ{files, mail} {
		must(0, initiator.PostSend(&roce.SendWR{Opcode: roce.Send, RemoteSRQN: queue.Num(), Inline: []byte("hello")}))
	}
	for name, queue := range map[string]*roce.SRQ{"mail": mail, "files": files} {
		wc := must(queue.CQ().Next(ctx))
		fmt.Println(name, wc.Status, wc.ByteLen, wc.QPN == target.Num())
	}
	// Unordered output:
	// mail SUCCESS 5 true
	// files SUCCESS 5 true
}
