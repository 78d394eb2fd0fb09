//go:build linux

package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goroce/roce/bth"
)

// params has the values for the command lines of a case.
type params struct {
	self, peer  string // addresses
	port        int
	count, size int
	conns       int
	mtu         int // link MTU
}

// expand replaces the names in braces in a command line and splits it.
func (p params) expand(line string) []string {
	return strings.Fields(strings.NewReplacer("{self}", p.self, "{peer}", p.peer, "{port}", strconv.Itoa(p.port), "{count}", strconv.Itoa(p.count),
		"{size}", strconv.Itoa(p.size), "{conns}", strconv.Itoa(p.conns), "{mtu}", strconv.Itoa(pathMTU(p.mtu))).Replace(line))
}

// tool is one of rdma-core's example programs and rocectl's command for the same, if there is one.
type tool struct {
	name  string
	linux [2]string // program, by role; empty: name
	ours  [2]string // rocectl command, by role; empty: name, with '-' for '_'
	// args are the flags that both understand, by role; params.expand completes them.
	args [2]string
	// linuxArgs are flags that only rdma-core's program needs over IPv4, linuxArgs6 over IPv6.
	// oursArgs are flags that only rocectl needs; over IPv6 it gets oursArgs6 in addition.
	linuxArgs, linuxArgs6, oursArgs, oursArgs6 []string
	// oob: the two sides meet over TCP, not through the CM; always over IPv4, because
	// rdma-core's servers listen there only.
	oob bool
	// up matches the line of rdma-core's server after which its client may start. nil: the client
	// may start when the server listens on the port.
	up *regexp.Regexp
	// good is printed by rdma-core's program at a successful end, by role.
	good [2]*regexp.Regexp
	// busy is printed by the clients of both sides while data flows; broken by rdma-core's
	// client when its peer is gone (the client exits 0 all the same after a DREQ).
	busy, broken *regexp.Regexp
	// exitsEarly: rdma-core's client exits as soon as it has all data. If its last packet is
	// lost (an ACK, or a DREQ, which the kernel does not repeat for a dead process), the server
	// receives nothing more: it waits for ever after it has printed lastLine, or fails with timeout.
	exitsEarly bool
	lastLine   func(count int) *regexp.Regexp
	timeout    *regexp.Regexp
	// deaf: the server stops listening for a moment between its two connections. Our clients retry,
	// the kernel's do not.
	deaf bool
	// notYet is printed by rdma-core's client if it connects before the server listens. That happens
	// if the server's output comes earlier.
	notYet *regexp.Regexp
	// unready is printed by our client if rdma-core's server listens, but has not set its options yet.
	unready *regexp.Regexp
	// begins is printed by rdma-core's server before it listens, for servers that print nothing
	// later.
	begins *regexp.Regexp
	// datagrams: the client asks for UD queue pairs, not for connections.
	datagrams bool
	// knownBug is printed by rdma-core's program when one of its bugs makes it fail after all data
	// was exchanged (lastLine is printed).
	knownBug *regexp.Regexp
	// absent is a tshark filter for packets that rocectl must not send.
	absent string
	// present is a tshark filter for packets that each end must send.
	present string
	// source is the C file of a program that is not in a package: see examples.go. inGo is the
	// same program in the folder examples, with the flags that only this one needs.
	source string
	inGo   string
	// preload is a C file of the folder preload. Its library works around a bug of rdma-core's
	// program on Linux.
	preload string
	// endless: the server never ends, and its client confirms the transfer.
	endless bool
	// port is the fixed port of the program; 0: it takes any.
	port int
	// count and size of a transfer, clean and impaired.
	count, impairedCount, size int
	conns                      int
}

// program returns rdma-core's program for a role.
func (t *tool) program(as role) string {
	if t.source != "" {
		return t.example()
	}
	return cmp.Or(t.linux[as], t.name)
}

// preloaded is the path of the preloaded library in the guest.
func (t *tool) preloaded() string {
	return "/usr/lib/roce-" + strings.TrimSuffix(t.preload, ".c") + ".so"
}

// command returns rocectl's command for a role.
func (t *tool) command(as role) []string {
	return strings.Fields(cmp.Or(t.ours[as], strings.ReplaceAll(t.name, "_", "-")))
}

func both[T any](v T) [2]T { return [2]T{v, v} }

// ends returns the pattern of a successful end for both roles.
func ends(pattern string) [2]*regexp.Regexp { return both(regexp.MustCompile(pattern)) }

// calledEarly matches the line of rdma-core's programs if there is no listener.
var calledEarly = regexp.MustCompile(`RDMA_CM_EVENT_REJECTED[;,] error: 8\b`)

// rdma-core's programs as of Debian 12. Each tests something different: rping tests RDMA READ and
// WRITE, ibv_rc_pingpong deep queues, ucmatose many connections, rdma_client the defaults of
// librdmacm.
var (
	rping = &tool{
		name: "rping",
		args: [2]string{"-s -a {self} -p {port} -C {count} -S {size} -v -V", "-c -a {peer} -p {port} -C {count} -S {size} -v -V"},
		good: [2]*regexp.Regexp{
			regexp.MustCompile(`server ping data: rdma-ping-\d+`),
			regexp.MustCompile(`ping data: rdma-ping-\d+`),
		},
		busy:       regexp.MustCompile(`ping data: rdma-ping-3:`),
		broken:     regexp.MustCompile(`client DISCONNECT EVENT|cq completion (in Error|failed status)|poll error`),
		exitsEarly: true,
		lastLine: func(count int) *regexp.Regexp {
			return regexp.MustCompile(fmt.Sprintf(`ping data: rdma-ping-%d:`, count-1))
		},
		// One thread closes the event channel while the other reads it.
		knownBug: regexp.MustCompile(`rdma_get_cm_event: (Bad file descriptor|Invalid argument)`),
		count:    100, impairedCount: 10, size: 5000,
	}
	rcPingpong = pingpong("rc", "-p {port} -n {count} -s {size} -m {mtu}").with(func(t *tool) {
		t.exitsEarly, t.timeout = true, regexp.MustCompile(`(?i)retry.*exceeded`)
		t.impairedCount = 100
	})
	srqPingpong = rcPingpong.with(func(t *tool) {
		t.name, t.linux, t.ours = "srq_pingpong", both("ibv_srq_pingpong"), both("pingpong srq")
	})
	// The pingpongs of unreliable services repeat nothing: a packet that is lost or
	// duplicated spoils the count of both ends. They run clean only, or marked.
	ucPingpong = pingpong("uc", "-p {port} -n {count} -s {size} -m {mtu}")
	udPingpong = pingpong("ud", "-p {port} -n {count} -s {mtu}")
	rdmaClient = &tool{
		name:  "rdma_client",
		linux: [2]string{server: "rdma_server"},
		ours:  [2]string{server: "rdma-server"},
		args:  [2]string{"-s {self} -p {port}", "-s {peer} -p {port}"},
		good:  [2]*regexp.Regexp{regexp.MustCompile(`rdma_server: end 0`), regexp.MustCompile(`rdma_client: end 0`)},
	}
	ucmatose = &tool{
		name:  "ucmatose",
		args:  [2]string{"-b {self} -c {conns} -C {count} -S {size} -p {port}", "-s {peer} -c {conns} -C {count} -S {size} -p {port}"},
		good:  ends(`test complete\n(?s:.*)return status 0`),
		count: 30, impairedCount: 10, size: 3000, conns: 4,
		begins: regexp.MustCompile(`cmatose: starting server`), notYet: calledEarly,
	}
	fetchAdd = perftest("atomic_bw/FETCH_AND_ADD", "-A FETCH_AND_ADD", 2000, 300, 8)
	cmpSwap  = perftest("atomic_bw/CMP_AND_SWAP", "-A CMP_AND_SWAP", 2000, 300, 8)
	sendBW   = perftest("send_bw", "", 2000, 200, 2000)
	writeBW  = perftest("write_bw", "", 500, 50, 20000)
	readBW   = perftest("read_bw", "", 500, 50, 20000)
	sendLat  = perftest("send_lat", "", 200, 50, 64)
	writeLat = perftest("write_lat", "", 200, 50, 64)
	readLat  = perftest("read_lat", "", 200, 50, 64).quiet()
	// perftest's server of atomic_lat exits without printing a result.
	atomicLat = perftest("atomic_lat", "", 200, 50, 8).quiet()

	// An emulated guest serves one queue pair after the other. With perftest's own ACK timeout (-u 14) a queue pair
	// that waits for the others, or for its own other direction, uses up its retries within half a second.
	sendBoth  = perftest("send_bw/bidirectional", "-b -u 17", 300, 0, 2000)
	writeBoth = perftest("write_bw/bidirectional", "-b -q 2 -u 17", 50, 0, 20000)

	manyQPs   = perftest("send_bw/qp3", "-q 3 -u 17", 300, 0, 2000)
	allUD     = perftest("send_bw/UD/all", "-a -c UD", 20, 0, 1024).unchecked()
	timed     = perftest("send_lat/duration", "-D 2", 0, 0, 64).unchecked()
	managed   = perftest("send_bw/rdma_cm", "-R -q 2", 300, 0, 2000).managed()
	lists     = perftest("write_bw/list", "-l 10 -Q 5", 200, 0, 2000)
	events    = perftest("send_bw/events", "-e", 200, 0, 2000)
	sendUC    = perftest("send_bw/UC", "-c UC -t 4", 50, 0, 2000)
	sendUD    = perftest("send_bw/UD", "-c UD -t 4", 50, 0, 1000)
	writeUC   = perftest("write_lat/UC", "-c UC", 100, 0, 64)
	splitting = perftest("write_bw/split", "-b -u 17", 100, 0, 20000).with(func(t *tool) {
		t.oursArgs = append(t.oursArgs, "--split-writes")
		t.absent = fmt.Sprintf("infiniband.bth.opcode == %d", bth.RCWriteFirst)
	})

	// Flags that change the exchange or the packets, one row each. perfOptions has those of rocectl
	// perf: the services, the ways to wait and to connect, and the flags that only it has.
	// perftestOptions has all those of perftest's programs.
	perfOptions     = []*tool{managed, events, sendUC, sendUD, splitting}
	perftestOptions = []*tool{manyQPs, sendBoth, writeBoth, allUD, timed, managed, lists, events, sendUC, sendUD, writeUC,
		perftest("write_bw/qp3", "-q 3 -u 17", 100, 0, 20000),
		perftest("read_bw/bidirectional", "-b -u 17", 50, 0, 20000),
		perftest("atomic_bw/bidirectional", "-b -u 17", 300, 0, 8),
		perftest("send_lat/UD/all", "-a -c UD", 20, 0, 1024).unchecked(),
		perftest("write_bw/rdma_cm", "-R", 100, 0, 20000).managed(),
		perftest("read_bw/rdma_cm", "-R -b", 50, 0, 20000).managed(),
		perftest("send_lat/rdma_cm", "-R", 100, 0, 64).managed(),
		perftest("write_lat/rdma_cm", "-R", 100, 0, 64).managed(),
		perftest("write_bw/UC", "-c UC -t 4", 50, 0, 2000).unchecked(),
		perftest("send_lat/UC", "-c UC", 100, 0, 2000),
		perftest("send_lat/UD", "-c UD", 100, 0, 64),
	}

	// udaddy exchanges queue pair numbers through the CM (SIDR) and then datagrams. Datagrams are
	// not repeated: each end waits until it has received the expected number. Duplicates count, too.
	// They do no harm with a single connection; with several, the server takes a repeated request
	// for another client.
	udaddy = &tool{
		name:  "udaddy",
		port:  7174,
		args:  [2]string{"-b {self} -c {conns} -C {count} -S {mtu}", "-s {peer} -c {conns} -C {count} -S {mtu}"},
		good:  ends(`data transfers complete\ntest complete\n(?s:.*)return status 0`),
		count: 30, impairedCount: 10, conns: 4,
		datagrams: true,
	}
	udaddyOne = udaddy.with(func(t *tool) { t.conns, t.impairedCount = 1, 200 })

	// mckey: the receiver is the server and waits until it has received the expected number of
	// messages. Duplicates count. rdma-core's sender counts its own messages that the group returns
	// to it as sent, so it may exit after half of its messages. rdma_cm joins no IPv6 group on
	// RoCEv2.
	mckey = &tool{
		name:  "mckey",
		up:    regexp.MustCompile(`(?s)(joined dgid: ::ffff:239\.77\.1\.2.*){2}`),
		args:  [2]string{"-m 239.77.1.2 -b {self} -c {conns} -C {count} -S {mtu}", "-s -m 239.77.1.2 -b {self} -c {conns} -C {count} -S {mtu}"},
		good:  udaddy.good,
		count: 50, impairedCount: 50, conns: 2,
	}
	mckeyOne = mckey.with(func(t *tool) {
		t.conns = 1
		t.up = regexp.MustCompile(`joined dgid: ::ffff:239\.77\.1\.2`)
	})
	// cmtime exits with 0 even after a failure. The pattern therefore allows no output between the
	// steps.
	cmtime = &tool{
		name:    "cmtime",
		args:    [2]string{"-b {self} -p {port}", "-s {peer} -p {port} -c {conns}"},
		good:    ends(`connecting\ndisconnecting\ndestroying id\nstep +total ms`),
		endless: true,
		conns:   50,
	}
	// refuser is a server of rocectl that rejects every client.
	refuser   = &tool{name: "cm_reject", ours: both("cm reject"), args: [2]string{server: "-s {self} -p {port}"}}
	rstream   = streams("rstream")
	riostream = streams("riostream").with(func(t *tool) { t.unready = regexp.MustCompile(`the peer takes 0 mappings`) })

	// udpong sends datagrams between rsockets, and the server returns their number. The client repeats
	// the question. A server shows neither that it listens nor its port: a client that comes too early
	// is refused by the kernel's UDP, or repeats.
	udpong = &tool{
		name:    "udpong",
		up:      regexp.MustCompile(``),
		args:    [2]string{"-b {self} -p {port} -C {count} -S {size}", "-s {peer} -p {port} -C {count} -S {size}"},
		good:    ends(`(?m)^custom .*s +\d`),
		notYet:  regexp.MustCompile(`rsend: Connection refused`),
		preload: "loopback.c",
		present: fmt.Sprintf("infiniband.bth.opcode == %d", bth.UDSendOnly),
		endless: true,
		count:   300, impairedCount: 100, size: 1000,
	}

	// fiPingpong is libfabric's fi_pingpong over its verbs provider.
	fiPingpong = &tool{
		name:  "fi_pingpong",
		oob:   true,
		args:  [2]string{"-p verbs -e msg -B {port} -I {count} -S {size} -c", "-p verbs -e msg -P {port} -I {count} -S {size} -c {peer}"},
		good:  ends(`(?m)^4k +\d+ +=\d+ `),
		count: 100, impairedCount: 20, size: 4096,
	}
)

// pingpong is libibverbs' pingpong over a service.
func pingpong(service, args string) *tool {
	return &tool{
		name:       service + "_pingpong",
		linux:      both("ibv_" + service + "_pingpong"),
		ours:       both("pingpong " + service),
		linuxArgs:  []string{"-g", "1"}, // the GID of the IPv4 address
		linuxArgs6: []string{"-g", "2"},
		oursArgs6:  []string{"-g", ourIP6},
		oob:        true,
		args:       [2]string{args, args + " {peer}"},
		good:       ends(`\d+ iters in`),
		count:      200, impairedCount: 200, size: 4096,
	}
}

// perftest returns one of perftest's programs; the first part of name is the program. rocectl checks
// the operations as far as one end can: that each atomic was executed once, even if packets were
// lost, and that messages are complete and at the right address. With count 0 a flag sets the
// duration.
func perftest(name, more string, count, impairedCount, size int) *tool {
	program, _, _ := strings.Cut(name, "/")
	args := more + " -F -s {size} -p {port} -m {mtu}"
	if count > 0 {
		args += " -n {count}"
	}
	return &tool{
		name:      name,
		linux:     both("ib_" + program),
		ours:      both("perf " + program),
		linuxArgs: []string{"-x", "1"}, // the GID of the IPv4 address
		oursArgs:  []string{"--check"},
		oob:       true,
		args:      [2]string{args, args + " {peer}"},
		good:      ends(fmt.Sprintf(`(?m)^ %d +\d+ .*\n-{80}`, size)),
		count:     count, impairedCount: impairedCount, size: size,
	}
}

// streams returns rstream or riostream. They print their line when correct data has
// passed in both directions.
func streams(name string) *tool {
	const args = " -p {port} -I 3 -C {count} -S {size} -T v"
	return &tool{
		name:  name,
		args:  [2]string{"-b {self}" + args, "-s {peer}" + args},
		good:  ends(`(?m)^custom +19k .*s +\d`),
		count: 40, impairedCount: 8, size: 20000,
	}
}

// with returns a copy of the tool with a change.
func (t tool) with(change func(*tool)) *tool {
	change(&t)
	return &t
}

// unchecked does not compare the data.
func (t *tool) unchecked() *tool { return t.with(func(t *tool) { t.oursArgs = nil }) }

// managed makes the two sides connect through the CM.
func (t *tool) managed() *tool {
	return t.with(func(t *tool) {
		t.oob, t.linuxArgs = false, nil
		t.deaf = true
	})
}

// quiet is for a program whose server prints no result.
func (t *tool) quiet() *tool {
	return t.with(func(t *tool) { t.good[server] = regexp.MustCompile(`Latency Test`) })
}

// pathMTU returns the largest RoCE MTU that fits a link MTU with IPv6 headers.
func pathMTU(link int) int {
	for m := 4096; m > 256; m /= 2 {
		if m+80 <= link { // IPv6, UDP, BTH, the longest extended header, ICRC
			return m
		}
	}
	return 256
}
