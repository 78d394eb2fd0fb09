package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/tools/perftest"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

// Each tool works with both ends in this process.
func TestTools(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want []string // patterns of the output
	}{
		{[]string{"rping", "-c", "-C", "3", "-v", "-V"},
			[]string{`(?m)^listening on 10\.0\.0\.1:7174$`, `server ping data: rdma-ping-2: CDE`, `(?m)^ping data: rdma-ping-2: CDE`}},
		{[]string{"rping", "-s", "-C", "2", "-S", "5000"}, nil},
		{[]string{"rping", "-c", "-a", "fd00::7", "-C", "1", "-p", "1234", "--poll"}, []string{`listening on \[fd00::7\]:1234`}},
		{[]string{"pingpong", "rc", "-p", "0", "-n", "100", "-c", "--loss", "2%", "--seed", "7"},
			[]string{`  local address:  LID 0x0000, QPN 0x`, `  remote address: LID 0x0000, QPN 0x`, `819200 bytes in \d+\.\d\d seconds = \d+\.\d\d Mbit/sec\n100 iters in \d+\.\d\d seconds = \d+\.\d\d usec/iter`}},
		{[]string{"pingpong", "uc", "-p", "0", "-n", "100", "-c", "-m", "512"}, []string{`819200 bytes in`}},
		{[]string{"pingpong", "srq", "-p", "0", "-n", "100", "-c", "-q", "5"}, []string{`819200 bytes in`}},
		{[]string{"pingpong", "ud", "-p", "0", "-n", "100", "-c"}, []string{`204800 bytes in`}},
		{[]string{"perf", "atomic_bw", "-p", "0", "-n", "200", "--loss", "2%", "--seed", "7"},
			[]string{`Atomic FETCH_AND_ADD BW Test\n`, `(?m)^ local address:  LID 0000 QPN 0x`, ` #bytes     #iterations .*\n 8          200   `}},
		{[]string{"perf", "atomic_bw", "-p", "0", "-n", "200", "-A", "CMP_AND_SWAP", "-t", "16", "-o", "4", "-m", "256", "-F"},
			[]string{`Atomic CMP_AND_SWAP BW Test\n`, ` Mtu             : 256\[B\]\n Outstand reads  : 4\n`}},
		{[]string{"perf", "write_bw", "-p", "0", "-n", "50", "--dcqcn=10", "--ecn", "5%"}, []string{`(?m)^ 65536      50   `}},
		{[]string{"perf", "send_bw", "-p", "0", "-n", "50", "-b", "-q", "3", "--check", "--report_gbits", "-s", "64"},
			[]string{`Send Bidirectional BW Test\n Number of qps   : 3\n`, ` BW average\[Gb/sec\] `, `(?m)^ 64         150  `}},
		{[]string{"perf", "write_bw", "-p", "0", "-n", "40", "-l", "4", "-Q", "2", "--poll"},
			[]string{` Post List       : 4\n CQ Moderation   : 2\n`, `(?m)^ 65536      40   `}},
		{[]string{"perf", "write_bw", "-p", "0", "-n", "5", "-a", "-c", "UC"}, []string{`Connection type : UC\n`, `(?m)^ 2          5 (?s:.*)^ 8388608    5   `}},
		{[]string{"perf", "send_bw", "-p", "0", "-D", "30ms", "-f", "5ms", "-s", "64", "-c", "ud"}, []string{`(?m)^ 64 +\d+ +0\.00  `}},
		{[]string{"perf", "send_lat", "-p", "0", "-n", "50", "--poll", "-e"}, []string{`Send Latency Test\n`, ` #bytes #iterations    t_min\[usec\]`, `(?m)^ 2       50   `}},
		{[]string{"perf", "write_bw", "-n", "50", "-R", "--check"}, []string{`listening on 10\.0\.0\.1:18515\n`, `Data ex. method : rdma_cm\n`, `(?m)^ 65536      50   `}},
		{[]string{"perf", "send_bw", "-n", "50", "-R", "-q", "3", "-b", "--poll"}, []string{`(?m)^ 65536      150  `}},
		{[]string{"perf", "write_lat", "-n", "50", "-R", "--poll"}, []string{`(?m)^ 2       50   `}},
		{[]string{"perf", "write_lat", "-p", "0", "-n", "50", "--poll", "-H"}, []string{`RDMA_Write Latency Test\n`, `#, usec\n1, \d`, `\n47, (?s:.*) 2       50   `}},
		{[]string{"perf", "read_lat", "-p", "0", "-n", "50", "--poll", "-U"}, []string{`RDMA_Read Latency Test\n`, `\n49, `}},
		{[]string{"perf", "atomic_lat", "-p", "0", "-n", "50", "--check", "-A", "CMP_AND_SWAP"}, []string{`Atomic CMP_AND_SWAP Latency Test\n`}},
		{[]string{"perf", "send_bw", "-p", "0", "-n", "50", "-r", "10"}, []string{`Send BW Test\n`, `(?m)^ 65536      50   `}},
		{[]string{"perf", "write_bw", "-p", "0", "-n", "50", "-s", "4096"}, []string{`RDMA_Write BW Test\n`, `(?m)^ 4096       50   `}},
		{[]string{"perf", "read_bw", "-p", "0", "-n", "50", "-N"}, []string{`RDMA_Read BW Test\n`, `(?m)^ 65536      50               0.00   `}},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			code, stdout, stderr := rocectl(t, append(tt.args, "--link", "mem")...)
			if code != exitOK || stderr != "" {
				t.Errorf("exit %d, %s", code, stderr)
			}
			for _, p := range tt.want {
				if !regexp.MustCompile(p).MatchString(stdout) {
					t.Errorf("no %s in\n%s", p, stdout)
				}
			}
		})
	}
}

func TestCapture(t *testing.T) {
	for _, name := range []string{"x.pcap", "x.pcapng"} {
		file := filepath.Join(t.TempDir(), name)
		code, _, stderr := rocectl(t, "rping", "-c", "-C", "2", "--link", "mem", "--capture", file, "--counters")
		if code != exitOK || !strings.Contains(stderr, "rcvd_pkts") {
			t.Fatalf("exit %d, %s", code, stderr)
		}
		code, stdout, _ := rocectl(t, "pcap", "check", file)
		if code != exitOK || !strings.Contains(stdout, "RoCE") {
			t.Errorf("check: exit %d, %s", code, stdout)
		}
		_, stdout, _ = rocectl(t, "pcap", "decode", file)
		for _, want := range []string{"CM REQ", "CM REP", "CM RTU", "RC READ_REQUEST", "RC WRITE_ONLY", "CM DREQ", "CM DREP"} {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s: no %s in the capture", name, want)
			}
		}
	}
}

func TestToolUsage(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"rping"}, "either -s, the server, or -c, the client"},
		{[]string{"rping", "-s", "-c"}, "either -s"},
		{[]string{"rping", "-c", "-C", "-1"}, "-C -1: want 0 or more"},
		{[]string{"rping", "-c", "--dev", "eth0"}, "needs the address of its server: give -a ADDR"},
		{[]string{"rping", "-c", "--link", "carrier-pigeon"}, "want raw, udp, xdp or mem"},
		{[]string{"rping", "-c", "--link", "mem", "--dev", "eth0"}, "needs no --dev"},
		{[]string{"rping", "-c", "--in-place", "1"}, "needs --link xdp"},
		{[]string{"rping", "-c", "--link", "xdp", "--zero-copy", "yes"}, "--zero-copy yes: want auto, on or off"},
		{[]string{"dev", "--zero-copy", "on", "lo"}, "--zero-copy on needs --link xdp"},
		{[]string{"dev", "watch", "--zero-copy", "off", "lo"}, "--zero-copy off needs --link xdp"},
		{[]string{"rping", "-c", "--link", "xdp", "--in-place", "-1"}, "--in-place -1"},
		{[]string{"rping", "-c", "--link", "xdp", "--in-place", "1", "--loss", "1%"}, "in one piece"},
		{[]string{"rping", "-c", "--link", "mem", "--loss", "2"}, "not between 0 and 1"},
		{[]string{"pingpong", "rc", "-m", "1000"}, "256, 512, 1024, 2048 or 4096"},
		{[]string{"pingpong", "rc", "a", "b"}, "\"b\" is an argument too many: want rocectl pingpong rc [HOST]"},
		{[]string{"pingpong", "ud", "-m", "1024"}, "unknown shorthand flag: 'm'"},
		{[]string{"pingpong", "xx"}, "no command"},
		{[]string{"perf", "atomic_bw", "-m", "1000"}, "256, 512, 1024, 2048 or 4096"},
		{[]string{"perf", "atomic_bw", "-A", "SUBTRACT"}, "want CMP_AND_SWAP or FETCH_AND_ADD"},
		{[]string{"perf", "atomic_fs"}, "no command"},
		{[]string{"perf", "send_bw", "-c", "DC"}, "want RC, UC or UD"},
		{[]string{"perf", "send_bw", "-D", "soon"}, "want seconds"},
		{[]string{"perf", "send_bw", "-D", "1", "-n", "10"}, "either -n, a number of messages, or -D"},
		{[]string{"perf", "send_lat", "-q", "2"}, "unknown shorthand flag: 'q'"},
		{[]string{"perf", "write_lat", "-e"}, "unknown shorthand flag: 'e'"},
		{[]string{"perf", "read_bw", "-I", "10"}, "unknown shorthand flag: 'I'"},
		{[]string{"rping", "-c", "--link", "mem", "-S", "0"}, "-S 0: want 27 to 65535"},
		{[]string{"rping", "-c", "--link", "mem", "-S", "7"}, "-S 7: want 27 to 65535"},
		{[]string{"rping", "-c", "-a", "10.0.0.2", "-S", "7", "--dev", "no-such-if"}, "-S 7: want"}, // before the NIC is opened
		{[]string{"rping", "-c", "-p", "99999"}, "-p, --port 99999: want 0 to 65535; see "},
		{[]string{"rping", "-c", "-S", "large"}, "-S, --size large: want a whole number; see "},
		{[]string{"rping", "-c", "--spin", "5"}, "--spin 5: want a time like 50us, or none; "},
		{[]string{"rping", "-c", "--spin", "-1ns"}, "--spin -1ns: want a time like 50us, or none; see rocectl rping --help\n"},
		{[]string{"rping", "-c", "--poll=maybe"}, "--poll maybe: want true or false; see "},
		{[]string{"rping", "-c", "--loss", "200%"}, "not between 0 and 1"},
		{[]string{"rping", "-c", "--dcqcn=0"}, "--dcqcn=0: want the speed of the line"},
		{[]string{"rping", "-c", "extra"}, "\"extra\" is an argument too many: want rocectl rping"},
		{[]string{"demo", "--loss", "much"}, "--loss much: want a number like 0.05; see "},
		{[]string{"demo", "--rounds", "0"}, "at least one round"},
		{[]string{"rstream", "-S", "0"}, "-S 0: want bytes of a transfer"},
		{[]string{"fi-pingpong", "-I", "0"}, "-I 0: want 1 or more"},
		{[]string{"fi-pingpong", "-S", "x"}, "-S x: want bytes of a message"},
		{[]string{"cm", "reject", "-C", "-1"}, "-C -1: want 0 or more"},
		{[]string{"pingpong", "rc", "--link", "mem", "-s", "0"}, "-s 0: want 1 or more"},
		{[]string{"pingpong", "rc", "-g", "eth0"}, "-g eth0: want an index or an IP address"},
		{[]string{"pingpong", "srq", "-q", "0"}, "-q 0: want 1 to 255"},
		{[]string{"pingpong", "ud", "--link", "mem", "-s", "100000"}, "-s 100000: a datagram has at most"},
		{[]string{"perf", "send_bw", "-n", "0"}, "messages (-n) 0: want 5 to 100000000"},
		{[]string{"perf", "send_bw", "--link", "mem", "-m", "4096"}, "path MTU (-m)"},
		{[]string{"perf", "send_bw", "--link", "mem", "-x", "7"}, "GID index 7: the device has"},
		{[]string{"perf", "atomic_bw", "--link", "mem", "-s", "16"}, "atomic_bw has 8 only"},
		{[]string{"perf", "read_bw", "--link", "mem", "-c", "UC"}, "UC: read_bw knows RC"},
		{[]string{"man", "no", "such"}, "has no command \"no such\""},
		{[]string{"dev", "watch"}, "an argument is missing: want rocectl dev watch IFACE"},
		{[]string{"dev", "--link", "mem", "lo"}, "--link mem: want raw"},
		{[]string{"dev", "watch", "--link", "mem", "lo"}, "--link mem: want raw"},
		{[]string{"cm", "probe", "10.0.0.1"}, "want HOST:PORT"},
		{[]string{"cm", "probe", "10.0.0.1:http"}, "not a port"},
		{[]string{"cm", "probe", "--link", "mem", "10.0.0.1:7"}, "no program listens"},
	} {
		code, _, stderr := rocectl(t, tt.args...)
		if code != exitUsage || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("rocectl %v: exit %d, %q; want %q", tt.args, code, stderr, tt.want)
		}
	}
}

func TestToolFails(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"rping", "-c", "-C", "1", "--link", "mem", "--capture", "/no/such/folder/x.pcap"}, "/no/such/folder/x.pcap"},
		{[]string{"rping", "-s", "--dev", "no-such-if"}, "no such network interface: no-such-if: choose one of "},
		{[]string{"dev", "no-such-if"}, "no such network interface: no-such-if: choose one of "},
		{[]string{"dev", "watch", "no-such-if"}, "no such network interface: no-such-if: choose one of "},
		{[]string{"rping", "-c", "--link", "udp", "-a", "no host"}, "host \"no host\": "},
		{[]string{"pcap", "decode", "/no/such/file"}, "/no/such/file"},
		{[]string{"pcap", "check", "root.go"}, "root.go: pcap: not a valid capture file"},
	} {
		code, _, stderr := rocectl(t, tt.args...)
		if code != exitFailed || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("rocectl %v: exit %d, %q; want one line with %q", tt.args, code, stderr, tt.want)
		}
	}
}

// waitFor keeps output and calls cancel when the output contains a text.
type waitFor struct {
	text   string
	cancel context.CancelFunc
	bytes.Buffer
}

func (w *waitFor) Write(b []byte) (int, error) {
	w.Buffer.Write(b)
	if strings.Contains(w.String(), w.text) {
		w.cancel()
	}
	return len(b), nil
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := filepath.Join(t.TempDir(), "x.pcap")
	out := &waitFor{text: "ping data: rdma-ping-5:", cancel: cancel}
	var errs bytes.Buffer
	run(ctx, []string{"rping", "-c", "-v", "--link", "mem", "--capture", file}, out, &errs)
	_, stdout, _ := rocectl(t, "pcap", "decode", file)
	if !strings.Contains(stdout, "CM DREP") {
		t.Error("the connection was not ended in order, or the capture not finished")
	}
}

func TestResolve(t *testing.T) {
	for in, want := range map[string]string{
		"10.1.2.3": "10.1.2.3", "::ffff:10.1.2.3": "10.1.2.3", "fe80::1%lo": "fe80::1", "": "invalid IP",
	} {
		if got, err := resolve(t.Context(), in); err != nil || got.String() != want {
			t.Errorf("resolve(%q) = %v, %v", in, got, err)
		}
	}
}

// dev describes a NIC with the driver of --link, even if the NIC cannot be opened.
func TestDevLink(t *testing.T) {
	all := machine.InterfaceNames()
	if len(all) == 0 {
		t.Skip("no network interface")
	}
	code, stdout, stderr := rocectl(t, "dev", "--link", "udp", "--json", all[0])
	if code != exitOK || !strings.Contains(stdout, `"driver":"udp"`) {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
}

// If the two ends cannot connect, the error says what to do next.
func TestAdvice(t *testing.T) {
	for errno, want := range map[syscall.Errno]string{
		syscall.ECONNREFUSED: "start the server there first, with the same port", syscall.ETIMEDOUT: "start the server there first",
		syscall.EHOSTUNREACH: "check the address", syscall.EADDRINUSE: "give both ends another one", syscall.EADDRNOTAVAIL: "an address of this host",
	} {
		if err := advise(fmt.Errorf("dial: %w", errno)); !errors.Is(err, errno) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := advise(io.EOF); err != io.EOF {
		t.Errorf("%v", err)
	}
}

// parseOneOf accepts the names of values in upper and lower case. Its error lists the names.
func TestParseOneOf(t *testing.T) {
	var got perftest.AtomicType
	parse := parseOneOf(&got, perftest.AtomicType.String, perftest.CmpAndSwap, perftest.FetchAndAdd)
	for _, want := range []perftest.AtomicType{perftest.CmpAndSwap, perftest.FetchAndAdd} {
		if err := parse(strings.ToLower(want.String())); err != nil || got != want {
			t.Errorf("%v: %v, %v", want, got, err)
		}
	}
	if err := parse("SUBTRACT"); err == nil || err.Error() != "want CMP_AND_SWAP or FETCH_AND_ADD" {
		t.Errorf("SUBTRACT: %v", err)
	}
}

// While a client gets no packet from its peer, it prints how long it has waited.
func TestReportSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := tooltest.Pair(t, fault.Config{})
		peer := netip.MustParseAddr(tooltest.Server4)
		var log bytes.Buffer
		quit := reportSilence(&log, client, peer, silenceStep)
		time.Sleep(25 * time.Second)
		listener, err := server.Listen(t.Context(), netip.AddrPortFrom(peer, 1).String(), roce.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		go listener.Accept(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		client.Dial(ctx, listener.Addr().String(), roce.DialConfig{}) // no program accepts the connection, but the peer sends packets
		quit()
		want := "no packet from 10.77.0.1 for 10s; the attempt ends after about 70s\nno packet from 10.77.0.1 for 20s; the attempt ends after about 70s\n"
		if log.String() != want {
			t.Errorf("printed %q, want %q", log.String(), want)
		}
	})
}
