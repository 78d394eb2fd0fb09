// Command verbs-rc is the example program of the RDMA Aware Networks manual, RDMA_RC_example.c, in Go: SEND and
// receive, READ and WRITE between two RC queue pairs. The two ends exchange the data of the queue pairs over TCP
// in the format of the C program, so either end may be the C program.
//
//	server$ verbs-rc -d 10.0.0.1
//	client$ verbs-rc -d 10.0.0.2 10.0.0.1
//
// The functions have the names of the C program, in its order.
package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/internal/nic"
	"github.com/goroce/roce/examples/internal/try"
)

// The messages. They have one length, because the program sends all with the size of the first.
const (
	msg     = "SEND operation      "
	readMsg = "RDMA read operation "
	wrMsg   = "RDMA write operation"
	msgSize = len(msg) + 1 // with the zero that ends a string in C
)

// conData is struct cm_con_data_t: the data that the ends exchange, packed and in network byte order.
type conData struct {
	Addr  uint64
	RKey  uint32
	QPNum uint32
	LID   uint16 // 0: RoCE has no LIDs
	GID   roce.GID
}

// resources is struct resources, with struct config_t.
type resources struct {
	devName, serverName     string // serverName is empty: this end is the server
	tcpPort, ibPort, gidIdx int
	out                     io.Writer
	remoteProps             conData
	nic                     *roce.Device
	cq                      *roce.CQ
	qp                      *roce.QP
	mr                      *roce.MR
	sock                    net.Conn
	opened                  try.Opened // resources_destroy
}

func main() { try.Main("verbs-rc", run) }

// run is main of the C program.
func run(ctx context.Context, args []string, out io.Writer) error {
	res := &resources{out: out}
	if err := res.parse(args); err != nil {
		return err
	}
	res.printConfig()
	err := res.exchange(ctx)
	fmt.Fprintf(out, "\ntest result is %d\n", map[bool]int{false: 0, true: 1}[err != nil])
	return err
}

// sockConnect connects to the server, or waits for the client.
func (res *resources) sockConnect(ctx context.Context) (net.Conn, error) {
	if res.serverName != "" {
		var d net.Dialer
		return d.DialContext(ctx, "tcp4", net.JoinHostPort(res.serverName, strconv.Itoa(res.tcpPort)))
	}
	l := try.Get(net.Listen("tcp4", ":"+strconv.Itoa(res.tcpPort)))
	defer l.Close()
	fmt.Fprintf(res.out, "waiting on port %d for TCP connection\n", res.tcpPort)
	return l.Accept()
}

// sockSyncData sends local to the peer and waits for as many bytes of the peer.
func (res *resources) sockSyncData(local, remote []byte) {
	try.Get(res.sock.Write(local))
	try.Get(io.ReadFull(res.sock, remote))
}

// sync waits until the peer has come to the same step.
func (res *resources) sync(step byte) { res.sockSyncData([]byte{step}, make([]byte, 1)) }

// pollCompletion waits for one completion. The C program polls in a loop; Next waits.
func (res *resources) pollCompletion(ctx context.Context) {
	ctx, stop := context.WithTimeout(ctx, 2*time.Second) // MAX_POLL_CQ_TIMEOUT
	defer stop()
	wc, err := res.cq.Next(ctx)
	if err != nil {
		try.Do(fmt.Errorf("completion wasn't found in the CQ after timeout: %w", err))
	}
	fmt.Fprintf(res.out, "completion was found in CQ with status 0x%x\n", uint8(wc.Status))
	try.Do(wc.Err())
}

// transfer posts a SEND, READ or WRITE of the whole buffer (post_send) and waits for its completion.
func (res *resources) transfer(ctx context.Context, opcode roce.Opcode) {
	try.Do(res.qp.PostSend(&roce.SendWR{Opcode: opcode, Flags: roce.Signaled, SG: []roce.SGE{res.mr.SGE(0, msgSize)},
		RemoteAddr: res.remoteProps.Addr, RKey: roce.RKey(res.remoteProps.RKey)})) // a SEND ignores these
	name := map[roce.Opcode]string{roce.Send: "Send", roce.Read: "RDMA Read", roce.Write: "RDMA Write"}[opcode]
	fmt.Fprintf(res.out, "%s Request was posted\n", name)
	res.pollCompletion(ctx)
}

// postReceive posts a receive into the buffer.
func (res *resources) postReceive() {
	try.Do(res.qp.PostRecv(&roce.RecvWR{SG: []roce.SGE{res.mr.SGE(0, msgSize)}}))
	fmt.Fprintln(res.out, "Receive Request was posted")
}

// resourcesCreate makes the TCP connection, opens the device and makes its objects.
func (res *resources) resourcesCreate(ctx context.Context) {
	res.sock = try.Get(res.sockConnect(ctx))
	res.opened.Add(res.sock.Close)
	fmt.Fprintln(res.out, "TCP connection was established")
	res.nic = try.Get(nic.Open(res.devName, res.serverName))
	res.opened.Add(res.nic.Close)
	try.Get(res.nic.QueryPort(res.ibPort))
	pd := res.nic.AllocPD()
	res.cq = try.Get(res.nic.CreateCQ(1)) // each side has one work request at a time
	// This end gets no completion of the peer's WRITE, so it may read while the peer writes: the memory is Watched.
	// The length of Watched memory is a multiple of 8.
	access := roce.LocalWrite | roce.RemoteRead | roce.RemoteWrite
	res.mr = try.Get(pd.RegMR(make([]byte, (msgSize+7)&^7), access|roce.Watched))
	res.opened.Add(res.mr.Close)
	if res.serverName == "" {
		res.setBuf(msg)
		fmt.Fprintf(res.out, "going to send the message: '%s'\n", res.buf())
	}
	fmt.Fprintf(res.out, "MR was registered with addr=%#x, lkey=0x%x, rkey=0x%x, flags=0x%x\n", res.mr.Addr(), uint32(res.mr.LKey()), uint32(res.mr.RKey()), uint32(access))
	res.qp = try.Get(pd.CreateQP(roce.QPConfig{Type: roce.RC, SignalAll: true, SendCQ: res.cq, RecvCQ: res.cq,
		Caps: roce.Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}))
	res.opened.Add(res.qp.Close)
	fmt.Fprintf(res.out, "QP was created, QP number=0x%x\n", uint32(res.qp.Num()))
}

// modifyQPToInit moves the queue pair from RESET to INIT.
func (res *resources) modifyQPToInit() error {
	return res.qp.Modify(&roce.Attr{State: roce.StateInit, Port: uint8(res.ibPort), PKeyIndex: 0, Access: roce.LocalWrite | roce.RemoteRead | roce.RemoteWrite},
		roce.AttrState|roce.AttrPKeyIndex|roce.AttrPort|roce.AttrAccess)
}

// modifyQPToRTR moves it from INIT to RTR: from now on it accepts packets of the peer.
func (res *resources) modifyQPToRTR(ctx context.Context, remote conData) error {
	av := try.Get(res.nic.CreateAH(ctx, roce.AHAttr{DGID: remote.GID, SGIDIndex: res.gidIdx, HopLimit: 1, Port: uint8(res.ibPort)}))
	return res.qp.Modify(&roce.Attr{State: roce.StateRTR, PathMTU: roce.MTU256, DestQPN: roce.QPN(remote.QPNum), RQPSN: 0, MaxDestRdAtomic: 1, MinRNRTimer: 0x12, AV: av},
		roce.AttrState|roce.AttrAV|roce.AttrPathMTU|roce.AttrDestQPN|roce.AttrRQPSN|roce.AttrMaxDestRdAtomic|roce.AttrMinRNRTimer)
}

// modifyQPToRTS moves it from RTR to RTS: it may send.
func (res *resources) modifyQPToRTS() error {
	return res.qp.Modify(&roce.Attr{State: roce.StateRTS, Timeout: 0x12, RetryCnt: 6, RNRRetry: 0, SQPSN: 0, MaxRdAtomic: 1},
		roce.AttrState|roce.AttrTimeout|roce.AttrRetryCnt|roce.AttrRNRRetry|roce.AttrSQPSN|roce.AttrMaxRdAtomic)
}

// connectQP exchanges the data of queue pair and memory with the peer, and connects the queue pair.
func (res *resources) connectQP(ctx context.Context) {
	gid := try.Get(res.nic.QueryGID(res.ibPort, res.gidIdx))
	local := conData{Addr: res.mr.Addr(), RKey: uint32(res.mr.RKey()), QPNum: uint32(res.qp.Num()), GID: gid}
	fmt.Fprintf(res.out, "\nLocal LID = 0x%x\n", local.LID)
	sent := try.Get(binary.Append(nil, binary.BigEndian, local))
	received := make([]byte, len(sent))
	res.sockSyncData(sent, received)
	remote := &res.remoteProps
	try.Get(binary.Decode(received, binary.BigEndian, remote))
	fmt.Fprintf(res.out, "Remote address = 0x%x\nRemote rkey = 0x%x\nRemote QP number = 0x%x\nRemote LID = 0x%x\n", remote.Addr, remote.RKey, remote.QPNum, remote.LID)
	fmt.Fprintf(res.out, "Remote GID = %s\n", strings.ReplaceAll(fmt.Sprintf("% x", remote.GID[:]), " ", ":"))
	try.Do(res.modifyQPToInit())
	if res.serverName != "" { // be prepared for the server's message
		res.postReceive()
	}
	try.Do(res.modifyQPToRTR(ctx, *remote))
	try.Do(res.modifyQPToRTS())
	fmt.Fprintln(res.out, "QP state was change to RTS")
	res.sync('Q')
}

// buf is the text in the buffer.
func (res *resources) buf() string {
	text := make([]byte, msgSize)
	res.mr.ReadAt(text, 0) // it is as long as the region
	return string(text[:len(msg)])
}

// setBuf puts a text into the buffer.
func (res *resources) setBuf(text string) { try.Get(res.mr.WriteAt(append([]byte(text), 0), 0)) }

// exchange creates the resources, connects the queue pair and moves the messages.
func (res *resources) exchange(ctx context.Context) (err error) {
	defer res.opened.Close(&err)
	defer try.Catch(&err)
	res.resourcesCreate(ctx)
	res.connectQP(ctx)
	if res.serverName == "" {
		res.transfer(ctx, roce.Send)
		res.setBuf(readMsg) // for the client to read
		res.sync('R')
		res.sync('W') // the client is done
		fmt.Fprintf(res.out, "Contents of server buffer: '%s'\n", res.buf())
		return nil
	}
	res.pollCompletion(ctx)
	fmt.Fprintf(res.out, "Message is: '%s'\n", res.buf())
	res.sync('R')
	res.transfer(ctx, roce.Read)
	fmt.Fprintf(res.out, "Contents of server's buffer: '%s'\n", res.buf())
	res.setBuf(wrMsg)
	fmt.Fprintf(res.out, "Now replacing it with: '%s'\n", res.buf())
	res.transfer(ctx, roce.Write)
	res.sync('W')
	return nil
}

// printConfig prints the parameters.
func (res *resources) printConfig() {
	const line = " ------------------------------------------------"
	fmt.Fprintf(res.out, "%s\n Device name: %q\n IB port: %d\n", line, cmp.Or(res.devName, "(null)"), res.ibPort)
	if res.serverName != "" {
		fmt.Fprintf(res.out, " IP: %s\n", res.serverName)
	}
	fmt.Fprintf(res.out, " TCP port: %d\n GID index: %d\n%s\n\n", res.tcpPort, res.gidIdx, line)
}

// parse reads the command line. Flags have a short and a long name.
func (res *resources) parse(args []string) error {
	f := flag.NewFlagSet("verbs-rc", flag.ContinueOnError)
	for _, names := range [][4]string{{"p", "d", "i", "g"}, {"port", "ib-dev", "ib-port", "gid-idx"}} {
		f.IntVar(&res.tcpPort, names[0], 19875, "listen on or connect to TCP `port`")
		f.StringVar(&res.devName, names[1], "", nic.Usage)
		f.IntVar(&res.ibPort, names[2], 1, "`port` of the device")
		f.IntVar(&res.gidIdx, names[3], 0, "`index` of the GID to send from; the C program needs -g, because RoCE cannot do without GIDs")
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	if res.serverName = f.Arg(0); f.NArg() > 1 {
		return fmt.Errorf("%q: one server name is enough", f.Args())
	}
	return nil
}
