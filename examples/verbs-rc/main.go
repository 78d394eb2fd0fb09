// Command verbs-rc is the example program of the RDMA Aware Networks manual, RDMA_RC_example.c, in
// Go: SEND and receive, READ and WRITE between two RC queue pairs. The two ends exchange what the
// queue pairs need over TCP, in the format of the C program: either end may be that one.
//
//	server$ verbs-rc -d 10.0.0.1
//	client$ verbs-rc -d 10.0.0.2 10.0.0.1
//
// The functions have the names of the C program, and stand in its order.
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/internal/nic"
)

// The messages, of one length: all are moved with the size of the first.
const (
	msg     = "SEND operation      "
	readMsg = "RDMA read operation "
	wrMsg   = "RDMA write operation"
	msgSize = len(msg) + 1 // with the zero that ends a string in C

	pollTimeout = 2 * time.Second // MAX_POLL_CQ_TIMEOUT
)

// config is struct config_t.
type config struct {
	devName    string
	serverName string // empty: this end is the server
	tcpPort    int
	ibPort     int
	gidIdx     int
}

// conData is struct cm_con_data_t: what the ends tell each other, packed and in network byte order.
type conData struct {
	Addr  uint64
	RKey  uint32
	QPNum uint32
	LID   uint16 // 0: RoCE has no LIDs
	GID   roce.GID
}

// resources is struct resources.
type resources struct {
	config
	out         io.Writer
	remoteProps conData
	nic         *roce.Device
	pd          *roce.PD
	cq          *roce.CQ
	qp          *roce.QP
	mr          *roce.MR
	sock        net.Conn
}

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "verbs-rc:", err)
		os.Exit(1)
	}
}

// sockConnect connects to the server, or waits for the client.
func (res *resources) sockConnect(ctx context.Context) (err error) {
	if res.serverName != "" {
		var d net.Dialer
		res.sock, err = d.DialContext(ctx, "tcp4", net.JoinHostPort(res.serverName, strconv.Itoa(res.tcpPort)))
		return err
	}
	l, err := net.Listen("tcp4", ":"+strconv.Itoa(res.tcpPort))
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Fprintf(res.out, "waiting on port %d for TCP connection\n", res.tcpPort)
	res.sock, err = l.Accept()
	return err
}

// sockSyncData sends local to the peer and waits for as many bytes of the peer.
func (res *resources) sockSyncData(local, remote []byte) error {
	if _, err := res.sock.Write(local); err != nil {
		return err
	}
	_, err := io.ReadFull(res.sock, remote)
	return err
}

// sync waits until the peer has come to the same step.
func (res *resources) sync(step byte) error { return res.sockSyncData([]byte{step}, make([]byte, 1)) }

// pollCompletion waits for one completion. The C program polls in a loop; Next waits.
func (res *resources) pollCompletion(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, pollTimeout)
	defer stop()
	wc, err := res.cq.Next(ctx)
	if err != nil {
		return fmt.Errorf("completion wasn't found in the CQ after timeout: %w", err)
	}
	fmt.Fprintf(res.out, "completion was found in CQ with status 0x%x\n", uint8(wc.Status))
	return wc.Err()
}

// postSend posts a SEND, READ or WRITE of the whole buffer.
func (res *resources) postSend(opcode roce.Opcode) error {
	sr := roce.SendWR{Opcode: opcode, Flags: roce.Signaled, SG: []roce.SGE{res.mr.SGE(0, msgSize)}}
	if opcode != roce.Send {
		sr.RemoteAddr, sr.RKey = res.remoteProps.Addr, roce.RKey(res.remoteProps.RKey)
	}
	if err := res.qp.PostSend(&sr); err != nil {
		return err
	}
	name := map[roce.Opcode]string{roce.Send: "Send", roce.Read: "RDMA Read", roce.Write: "RDMA Write"}[opcode]
	fmt.Fprintf(res.out, "%s Request was posted\n", name)
	return nil
}

// postReceive posts a receive into the buffer.
func (res *resources) postReceive() error {
	if err := res.qp.PostRecv(&roce.RecvWR{SG: []roce.SGE{res.mr.SGE(0, msgSize)}}); err != nil {
		return err
	}
	fmt.Fprintln(res.out, "Receive Request was posted")
	return nil
}

// resourcesCreate makes the TCP connection, opens the device and makes its objects.
func (res *resources) resourcesCreate(ctx context.Context) (err error) {
	if err := res.sockConnect(ctx); err != nil {
		return err
	}
	fmt.Fprintln(res.out, "TCP connection was established")
	if res.nic, err = nic.Open(res.devName, res.serverName); err != nil {
		return err
	}
	if _, err := res.nic.QueryPort(res.ibPort); err != nil {
		return err
	}
	res.pd = res.nic.AllocPD()
	if res.cq, err = res.nic.CreateCQ(1); err != nil { // each side has one work request at a time
		return err
	}
	// A WRITE completes at the peer only. Watched memory can be read while the peer writes to it.
	// Its length is a multiple of 8.
	buf := make([]byte, (msgSize+7)&^7)
	access := roce.LocalWrite | roce.RemoteRead | roce.RemoteWrite
	if res.mr, err = res.pd.RegMR(buf, access|roce.Watched); err != nil {
		return err
	}
	if res.serverName == "" {
		if err := res.setBuf(msg); err != nil {
			return err
		}
		fmt.Fprintf(res.out, "going to send the message: '%s'\n", res.buf())
	}
	fmt.Fprintf(res.out, "MR was registered with addr=%#x, lkey=0x%x, rkey=0x%x, flags=0x%x\n", res.mr.Addr(), uint32(res.mr.LKey()), uint32(res.mr.RKey()), uint32(access))
	res.qp, err = res.pd.CreateQP(roce.QPConfig{Type: roce.RC, SignalAll: true, SendCQ: res.cq, RecvCQ: res.cq,
		Caps: roce.Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return err
	}
	fmt.Fprintf(res.out, "QP was created, QP number=0x%x\n", uint32(res.qp.Num()))
	return nil
}

// modifyQPToInit moves the queue pair from RESET to INIT.
func (res *resources) modifyQPToInit() error {
	return res.qp.Modify(&roce.Attr{State: roce.StateInit, Port: uint8(res.ibPort), PKeyIndex: 0, Access: roce.LocalWrite | roce.RemoteRead | roce.RemoteWrite},
		roce.AttrState|roce.AttrPKeyIndex|roce.AttrPort|roce.AttrAccess)
}

// modifyQPToRTR moves it from INIT to RTR: it takes packets of the peer from now on.
func (res *resources) modifyQPToRTR(ctx context.Context, remote conData) error {
	av, err := res.nic.CreateAH(ctx, roce.AHAttr{DGID: remote.GID, SGIDIndex: res.gidIdx, HopLimit: 1, Port: uint8(res.ibPort)})
	if err != nil {
		return err
	}
	return res.qp.Modify(&roce.Attr{State: roce.StateRTR, PathMTU: roce.MTU256, DestQPN: roce.QPN(remote.QPNum), RQPSN: 0, MaxDestRdAtomic: 1, MinRNRTimer: 0x12, AV: av},
		roce.AttrState|roce.AttrAV|roce.AttrPathMTU|roce.AttrDestQPN|roce.AttrRQPSN|roce.AttrMaxDestRdAtomic|roce.AttrMinRNRTimer)
}

// modifyQPToRTS moves it from RTR to RTS: it may send.
func (res *resources) modifyQPToRTS() error {
	return res.qp.Modify(&roce.Attr{State: roce.StateRTS, Timeout: 0x12, RetryCnt: 6, RNRRetry: 0, SQPSN: 0, MaxRdAtomic: 1},
		roce.AttrState|roce.AttrTimeout|roce.AttrRetryCnt|roce.AttrRNRRetry|roce.AttrSQPSN|roce.AttrMaxRdAtomic)
}

// connectQP tells the peer about the queue pair and the memory, and connects to the peer's.
func (res *resources) connectQP(ctx context.Context) error {
	gid, err := res.nic.QueryGID(res.ibPort, res.gidIdx)
	if err != nil {
		return err
	}
	local := conData{Addr: res.mr.Addr(), RKey: uint32(res.mr.RKey()), QPNum: uint32(res.qp.Num()), GID: gid}
	fmt.Fprintf(res.out, "\nLocal LID = 0x%x\n", local.LID)
	sent, err := binary.Append(nil, binary.BigEndian, local)
	if err != nil {
		return err
	}
	received := make([]byte, len(sent))
	if err := res.sockSyncData(sent, received); err != nil {
		return err
	}
	var remote conData
	if _, err := binary.Decode(received, binary.BigEndian, &remote); err != nil {
		return err
	}
	res.remoteProps = remote
	fmt.Fprintf(res.out, "Remote address = 0x%x\nRemote rkey = 0x%x\nRemote QP number = 0x%x\nRemote LID = 0x%x\n", remote.Addr, remote.RKey, remote.QPNum, remote.LID)
	fmt.Fprintf(res.out, "Remote GID = %s\n", strings.ReplaceAll(fmt.Sprintf("% x", remote.GID[:]), " ", ":"))
	if err := res.modifyQPToInit(); err != nil {
		return err
	}
	if res.serverName != "" { // be prepared for the server's message
		if err := res.postReceive(); err != nil {
			return err
		}
	}
	if err := res.modifyQPToRTR(ctx, remote); err != nil {
		return err
	}
	if err := res.modifyQPToRTS(); err != nil {
		return err
	}
	fmt.Fprintln(res.out, "QP state was change to RTS")
	return res.sync('Q')
}

// buf is the text in the buffer.
func (res *resources) buf() string {
	text := make([]byte, msgSize)
	res.mr.ReadAt(text, 0) // it is as long as the region
	return string(text[:len(msg)])
}

// setBuf puts a text into the buffer.
func (res *resources) setBuf(text string) error {
	_, err := res.mr.WriteAt(append([]byte(text), 0), 0)
	return err
}
