//go:build linux

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/goroce/roce/bth"
)

// params is what the command lines of a case are made from.
type params struct {
	self, peer  string // addresses
	port        int
	count, size int
	conns       int
	mtu         int // link MTU
}

// tool is one of rdma-core's example programs and rocectl's command for the same.
type tool struct {
	name  string
	linux [2]string // program, by role
	ours  [2]string // rocectl command, by role
	// linuxArgs are flags only rdma-core's program needs, linuxArgs6 those over IPv6.
	// oursArgs are flags only rocectl needs, oursArgs6 those over IPv6, too.
	linuxArgs, linuxArgs6, oursArgs, oursArgs6 []string
	// args makes the flags both understand.
	args [2]func(params) []string
	// oob: the two sides meet over TCP, not through the CM; always over IPv4, because
	// rdma-core's servers listen there only.
	oob bool
	// up is printed by rdma-core's server when its client may start; nil: it listens on
	// the port then.
	up *regexp.Regexp
	// good is printed by rdma-core's program at a successful end.
	good [2]*regexp.Regexp
	// busy is printed by the client of both while data flows; broken by rdma-core's
	// client when its peer is gone (it exits 0 all the same when told so by a DREQ).
	busy, broken *regexp.Regexp
	// rudeClient: rdma-core's client exits as soon as it has what it wants. If its
	// last packet is lost (an ACK, or a DREQ that the kernel does not repeat for a
	// dead process), the server hears no more: it waits for ever, having printed
	// lastWord, or fails with unheard.
	rudeClient bool
	lastWord   func(count int) *regexp.Regexp
	unheard    *regexp.Regexp
	// quirk is printed by rdma-core's program when it fails by a mistake of its own
	// after all is done (lastWord is out).
	quirk *regexp.Regexp
	// absent is a filter of tshark's for what we do not send.
	absent string
	// endless: the servers go on for ever, and confirm what is repeated.
	endless bool
	// port is the one the program has fixed; 0: it takes any.
	port int
	// count and size of a transfer, clean and impaired.
	count, impairedCount, size int
	conns                      int
}

func flags(format string, a ...any) []string { return strings.Fields(fmt.Sprintf(format, a...)) }

// rdma-core's programs as of Debian 12. The RDMA READ and WRITE of rping, the
// deep queues of ibv_rc_pingpong, the many connections of ucmatose and the librdmacm
// defaults of rdma_client are what makes them worth running each.
var (
	rping = &tool{
		name:  "rping",
		linux: [2]string{"rping", "rping"},
		ours:  [2]string{"rping", "rping"},
		args: [2]func(params) []string{
			func(p params) []string {
				return flags("-s -a %s -p %d -C %d -S %d -v -V", p.self, p.port, p.count, p.size)
			},
			func(p params) []string {
				return flags("-c -a %s -p %d -C %d -S %d -v -V", p.peer, p.port, p.count, p.size)
			},
		},
		good: [2]*regexp.Regexp{
			regexp.MustCompile(`server ping data: rdma-ping-\d+`),
			regexp.MustCompile(`ping data: rdma-ping-\d+`),
		},
		busy:       regexp.MustCompile(`ping data: rdma-ping-3:`),
		broken:     regexp.MustCompile(`client DISCONNECT EVENT|cq completion (in Error|failed status)|poll error`),
		rudeClient: true,
		lastWord: func(count int) *regexp.Regexp {
			return regexp.MustCompile(fmt.Sprintf(`ping data: rdma-ping-%d:`, count-1))
		},
		// One thread closes the event channel under the other.
		quirk: regexp.MustCompile(`rdma_get_cm_event: Bad file descriptor`),
		count: 100, impairedCount: 10, size: 5000,
	}
	rcPingpong = &tool{
		name:       "rc_pingpong",
		linux:      [2]string{"ibv_rc_pingpong", "ibv_rc_pingpong"},
		ours:       [2]string{"pingpong rc", "pingpong rc"},
		linuxArgs:  []string{"-g", "1"}, // the GID of the IPv4 address
		linuxArgs6: []string{"-g", "2"},
		oursArgs6:  []string{"-g", ourIP6},
		oob:        true,
		rudeClient: true,
		unheard:    regexp.MustCompile(`(?i)retry.*exceeded`),
		args: [2]func(params) []string{
			func(p params) []string {
				return flags("-p %d -n %d -s %d -m %d", p.port, p.count, p.size, pathMTU(p.mtu))
			},
			func(p params) []string {
				return flags("-p %d -n %d -s %d -m %d %s", p.port, p.count, p.size, pathMTU(p.mtu), p.peer)
			},
		},
		good: [2]*regexp.Regexp{
			regexp.MustCompile(`\d+ iters in`),
			regexp.MustCompile(`\d+ iters in`),
		},
		count: 500, impairedCount: 100, size: 4096,
	}
	srqPingpong = rcPingpong.with(func(t *tool) {
		t.name = "srq_pingpong"
		t.linux = [2]string{"ibv_srq_pingpong", "ibv_srq_pingpong"}
		t.ours = [2]string{"pingpong srq", "pingpong srq"}
	})
	// The pingpongs of unreliable services repeat nothing: a packet that is lost, or
	// comes twice, spoils the count of both ends. They run clean only, or marked.
	ucPingpong = &tool{
		name:       "uc_pingpong",
		linux:      [2]string{"ibv_uc_pingpong", "ibv_uc_pingpong"},
		ours:       [2]string{"pingpong uc", "pingpong uc"},
		linuxArgs:  rcPingpong.linuxArgs,
		linuxArgs6: rcPingpong.linuxArgs6,
		oursArgs6:  rcPingpong.oursArgs6,
		oob:        true,
		args:       rcPingpong.args,
		good:       rcPingpong.good,
		count:      500, impairedCount: 500, size: 4096,
	}
	udPingpong = &tool{
		name:       "ud_pingpong",
		linux:      [2]string{"ibv_ud_pingpong", "ibv_ud_pingpong"},
		ours:       [2]string{"pingpong ud", "pingpong ud"},
		linuxArgs:  rcPingpong.linuxArgs,
		linuxArgs6: rcPingpong.linuxArgs6,
		oursArgs6:  rcPingpong.oursArgs6,
		oob:        true,
		args: [2]func(params) []string{
			func(p params) []string { return flags("-p %d -n %d -s %d", p.port, p.count, pathMTU(p.mtu)) },
			func(p params) []string { return flags("-p %d -n %d -s %d %s", p.port, p.count, pathMTU(p.mtu), p.peer) },
		},
		good:  rcPingpong.good,
		count: 500,
	}
	rdmaClient = &tool{
		name:  "rdma_client",
		linux: [2]string{"rdma_server", "rdma_client"},
		ours:  [2]string{"rdma-server", "rdma-client"},
		args: [2]func(params) []string{
			func(p params) []string { return flags("-s %s -p %d", p.self, p.port) },
			func(p params) []string { return flags("-s %s -p %d", p.peer, p.port) },
		},
		good: [2]*regexp.Regexp{
			regexp.MustCompile(`rdma_server: end 0`),
			regexp.MustCompile(`rdma_client: end 0`),
		},
	}
	ucmatose = &tool{
		name:  "ucmatose",
		linux: [2]string{"ucmatose", "ucmatose"},
		ours:  [2]string{"ucmatose", "ucmatose"},
		args: [2]func(params) []string{
			func(p params) []string {
				return flags("-b %s -c %d -C %d -S %d -p %d", p.self, p.conns, p.count, p.size, p.port)
			},
			func(p params) []string {
				return flags("-s %s -c %d -C %d -S %d -p %d", p.peer, p.conns, p.count, p.size, p.port)
			},
		},
		good: [2]*regexp.Regexp{
			regexp.MustCompile(`test complete\n(?s:.*)return status 0`),
			regexp.MustCompile(`test complete\n(?s:.*)return status 0`),
		},
		count: 30, impairedCount: 10, size: 3000, conns: 4,
	}
	fetchAdd = perftest("atomic_bw/FETCH_AND_ADD", "-A FETCH_AND_ADD", 2000, 300, 8)
	cmpSwap  = perftest("atomic_bw/CMP_AND_SWAP", "-A CMP_AND_SWAP", 2000, 300, 8)
	sendBW   = perftest("send_bw", "", 2000, 200, 2000)
	writeBW  = perftest("write_bw", "", 500, 50, 20000)
	readBW   = perftest("read_bw", "", 500, 50, 20000)
	sendLat  = perftest("send_lat", "", 200, 50, 64)
	writeLat = perftest("write_lat", "", 200, 50, 64)
	readLat  = perftest("read_lat", "", 200, 50, 64).quiet()
	// perftest's server of atomic_lat exits without a word.
	atomicLat = perftest("atomic_lat", "", 200, 50, 8).quiet()

	sendBoth  = perftest("send_bw/bidirectional", "-b", 300, 0, 2000)
	writeBoth = perftest("write_bw/bidirectional", "-b -q 2", 50, 0, 20000)

	// One row each for what the flags change of the exchange and on the wire.
	perftestOptions = []*tool{
		perftest("send_bw/qp3", "-q 3", 300, 0, 2000),
		perftest("write_bw/qp3", "-q 3", 100, 0, 20000),
		sendBoth,
		writeBoth,
		perftest("read_bw/bidirectional", "-b", 50, 0, 20000),
		perftest("atomic_bw/bidirectional", "-b", 300, 0, 8),
		perftest("send_bw/UD/all", "-a -c UD", 20, 0, 1024).unchecked(),
		perftest("send_lat/UD/all", "-a -c UD", 20, 0, 1024).unchecked(),
		perftest("send_bw/duration", "-D 2", 0, 0, 2000).unchecked(),
		perftest("write_bw/duration", "-D 2 -b", 0, 0, 20000).unchecked(),
		perftest("send_lat/duration", "-D 2", 0, 0, 64).unchecked(),
		perftest("read_lat/duration", "-D 2", 0, 0, 64).unchecked().quiet(),
		perftest("send_bw/rdma_cm", "-R -q 2", 300, 0, 2000).managed(),
		perftest("write_bw/rdma_cm", "-R", 100, 0, 20000).managed(),
		perftest("read_bw/rdma_cm", "-R -b", 50, 0, 20000).managed(),
		perftest("send_lat/rdma_cm", "-R", 100, 0, 64).managed(),
		perftest("write_lat/rdma_cm", "-R", 100, 0, 64).managed(),
		perftest("write_bw/split", "-b", 100, 0, 20000).with(func(t *tool) {
			t.oursArgs = append(t.oursArgs, "--split-writes")
			t.absent = fmt.Sprintf("infiniband.bth.opcode == %d", bth.RCWriteFirst)
		}),
		perftest("write_bw/list", "-l 10 -Q 5", 200, 0, 2000),
		perftest("write_bw/gbits", "--report_gbits", 50, 0, 20000),
		perftest("send_bw/events", "-e", 200, 0, 2000),
		perftest("send_bw/UC", "-c UC -t 4", 50, 0, 2000),
		perftest("send_bw/UD", "-c UD -t 4", 50, 0, 1000),
		perftest("write_bw/UC", "-c UC -t 4", 50, 0, 2000).unchecked(),
		perftest("send_lat/UC", "-c UC", 100, 0, 2000),
		perftest("send_lat/UD", "-c UD", 100, 0, 64),
		perftest("write_lat/UC", "-c UC", 100, 0, 64),
	}
)

// perftest is one of perftest's programs, named by the first part of the case's name.
// rocectl checks what the operations did as far as an end can: that each atomic was
// executed once, whatever was lost; that messages are whole, and where they belong.
// count 0 is for as long as a flag says.
func perftest(name, more string, count, impairedCount, size int) *tool {
	program, _, _ := strings.Cut(name, "/")
	done := regexp.MustCompile(fmt.Sprintf(`(?m)^ %d +\d+ .*\n-{80}`, size))
	command := func(p params) []string {
		argv := flags("%s -F -s %d -p %d -m %d", more, p.size, p.port, pathMTU(p.mtu))
		if p.count > 0 {
			argv = append(argv, "-n", strconv.Itoa(p.count))
		}
		return argv
	}
	return &tool{
		name:      name,
		linux:     [2]string{"ib_" + program, "ib_" + program},
		ours:      [2]string{"perf " + program, "perf " + program},
		linuxArgs: []string{"-x", "1"}, // the GID of the IPv4 address
		oursArgs:  []string{"--check"},
		oob:       true,
		args: [2]func(params) []string{
			command,
			func(p params) []string { return append(command(p), p.peer) },
		},
		good:  [2]*regexp.Regexp{done, done},
		count: count, impairedCount: impairedCount, size: size,
	}
}

// unchecked leaves the data alone.
func (t *tool) unchecked() *tool {
	return t.with(func(t *tool) { t.oursArgs = nil })
}

// managed is for sides that meet through the CM.
func (t *tool) managed() *tool {
	return t.with(func(t *tool) { t.oob, t.linuxArgs = false, nil })
}

// quiet is for a program whose server has nothing to say of what was done.
func (t *tool) quiet() *tool {
	return t.with(func(t *tool) { t.good[server] = regexp.MustCompile(`Latency Test`) })
}

// udaddy exchanges queue pairs through the CM (SIDR) and then datagrams, of which
// none is repeated: each end waits until it has counted all. Copies count as messages
// and do no harm to a single connection; with several, its server takes a repeated
// request for another client.
var (
	udaddy = &tool{
		name:  "udaddy",
		linux: [2]string{"udaddy", "udaddy"},
		ours:  [2]string{"udaddy", "udaddy"},
		port:  7174,
		args: [2]func(params) []string{
			func(p params) []string {
				return flags("-b %s -c %d -C %d -S %d", p.self, p.conns, p.count, pathMTU(p.mtu))
			},
			func(p params) []string {
				return flags("-s %s -c %d -C %d -S %d", p.peer, p.conns, p.count, pathMTU(p.mtu))
			},
		},
		good: [2]*regexp.Regexp{
			regexp.MustCompile(`data transfers complete\ntest complete\n(?s:.*)return status 0`),
			regexp.MustCompile(`data transfers complete\ntest complete\n(?s:.*)return status 0`),
		},
		count: 30, impairedCount: 10, conns: 4,
	}
	udaddyOne = udaddy.with(func(t *tool) { t.conns, t.impairedCount = 1, 200 })

	// mckey: the receiver is the server and waits until it has counted all. Copies count
	// as messages. rdma-core's sender counts what comes back to it from the group as sent,
	// and so may leave with as little as half of its messages sent. rdma_cm joins no IPv6
	// group on RoCEv2.
	mckey = &tool{
		name:  "mckey",
		linux: [2]string{"mckey", "mckey"},
		ours:  [2]string{"mckey", "mckey"},
		up:    regexp.MustCompile(`(?s)(joined dgid: ::ffff:239\.77\.1\.2.*){2}`),
		args: [2]func(params) []string{
			func(p params) []string {
				return flags("-m 239.77.1.2 -b %s -c %d -C %d -S %d", p.self, p.conns, p.count, pathMTU(p.mtu))
			},
			func(p params) []string {
				return flags("-s -m 239.77.1.2 -b %s -c %d -C %d -S %d", p.self, p.conns, p.count, pathMTU(p.mtu))
			},
		},
		good:  udaddy.good,
		count: 50, impairedCount: 50, conns: 2,
	}
	mckeyOne = mckey.with(func(t *tool) {
		t.conns = 1
		t.up = regexp.MustCompile(`joined dgid: ::ffff:239\.77\.1\.2`)
	})
	// cmtime exits 0 whatever happened: nothing may be said between the steps.
	cmtime = &tool{
		name:  "cmtime",
		linux: [2]string{"cmtime", "cmtime"},
		ours:  [2]string{"cmtime", "cmtime"},
		args: [2]func(params) []string{
			func(p params) []string { return flags("-b %s -p %d", p.self, p.port) },
			func(p params) []string { return flags("-s %s -p %d -c %d", p.peer, p.port, p.conns) },
		},
		good:    [2]*regexp.Regexp{cmtimeDone, cmtimeDone},
		endless: true,
		conns:   50,
	}
	cmtimeDone = regexp.MustCompile(`connecting\ndisconnecting\ndestroying id\nstep +total ms`)
)

// with returns a tool that differs.
func (t tool) with(change func(*tool)) *tool {
	change(&t)
	return &t
}

// streams makes rstream and riostream, which print their line when the data has
// gone to and fro and was right.
func streams(name string) *tool {
	return &tool{
		name:  name,
		linux: [2]string{name, name},
		ours:  [2]string{name, name},
		args: [2]func(params) []string{
			func(p params) []string {
				return flags("-b %s -p %d -I 3 -C %d -S %d -T v", p.self, p.port, p.count, p.size)
			},
			func(p params) []string {
				return flags("-s %s -p %d -I 3 -C %d -S %d -T v", p.peer, p.port, p.count, p.size)
			},
		},
		good:  [2]*regexp.Regexp{streamLine, streamLine},
		count: 100, impairedCount: 8, size: 20000,
	}
}

var (
	streamLine = regexp.MustCompile(`(?m)^custom +19k .*s +\d`)
	rstream    = streams("rstream")
	riostream  = streams("riostream")
)

// fiPingpong is libfabric's fi_pingpong over its verbs provider.
var fiPingpong = &tool{
	name:  "fi_pingpong",
	linux: [2]string{"fi_pingpong", "fi_pingpong"},
	ours:  [2]string{"fi-pingpong", "fi-pingpong"},
	oob:   true,
	args: [2]func(params) []string{
		func(p params) []string {
			return flags("-p verbs -e msg -B %d -I %d -S %d -c", p.port, p.count, p.size)
		},
		func(p params) []string {
			return flags("-p verbs -e msg -P %d -I %d -S %d -c %s", p.port, p.count, p.size, p.peer)
		},
	},
	good:  [2]*regexp.Regexp{fiLine, fiLine},
	count: 200, impairedCount: 20, size: 4096,
}

var fiLine = regexp.MustCompile(`(?m)^4k +\d+ +=\d+ `)

// pathMTU is the largest RoCE MTU that fits a link MTU with IPv6 headers.
func pathMTU(link int) int {
	for m := 4096; m > 256; m /= 2 {
		if m+80 <= link { // IPv6, UDP, BTH, the longest extended header, ICRC
			return m
		}
	}
	return 256
}
