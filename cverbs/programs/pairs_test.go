package programs

import (
	"cmp"
	"context"
	"flag"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/interop/proc"
)

// pair is a program with a server and a client.
type pair struct {
	name     string
	server   string // command lines; {peer} is the server's address, {self} the address of the end itself
	client   string
	port     int            // the server's port
	tcp      bool           // port is of TCP, for the exchange of the queue pairs' data; otherwise of rdma_cm
	udp      bool           // port is of UDP
	up       *regexp.Regexp // used instead of port: what the server prints when it listens
	good     *regexp.Regexp // what both ends print; nil: nothing in particular
	broad    bool           // the representative of its kind: it runs under every condition
	mistake  *regexp.Regexp // exit status and output of an end that fails by its own bug after all was done
	endless  bool           // the server never ends
	lossless bool           // the service does not retransmit: no row with losses
	early    *regexp.Regexp // the client exits as soon as it has all data: what the server may print then if a packet is lost
	either   bool           // the server may exit early, too: then the client may print it
	env      []string       // more environment variables
	limit    time.Duration  // 0: a minute
}

// condition is a network.
type condition struct {
	name, flags string
	harms       bool // packets are lost or duplicated
}

var conditions = []condition{
	{name: "udp", flags: "--link udp"},
	{name: "raw", flags: "--link raw"},
	{name: "xdp", flags: "--link xdp"},
	{name: "loss4", flags: "--link raw --loss tx=4% --seed 7", harms: true},
	{name: "dup20", flags: "--link raw --dup tx=20% --seed 7", harms: true},
}

// excused waits for the end of a program. It returns true if the exit status and output match may: the program failed
// in a permitted way, after its work was done. Otherwise, and if may is nil, it returns false.
func excused(t *testing.T, p *proc.Proc, limit time.Duration, may *regexp.Regexp) bool {
	if may == nil {
		return false
	}
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	e, err := p.Wait(ctx)
	return err == nil && p.Failed(e) != nil && may.MatchString(e.String()+"\n"+p.Output())
}

var gone = regexp.MustCompile(`(?i)retry.*exceeded|disconnect`)

func pingpong(service, flags string) pair {
	p := "ibv_" + service + "_pingpong -g 1 -p 7301 -n 500 " + flags
	return pair{name: "ibv_" + service + "_pingpong", server: p, client: p + " {peer}", port: 7301, tcp: true, good: regexp.MustCompile(`\d+ iters in`), early: gone, either: true}
}

func perftest(program, flags string) pair {
	p := program + " -x 1 -F -p 7302 " + flags
	return pair{name: strings.TrimSpace(program + " " + flags), server: p, client: p + " {peer}", port: 7302, tcp: true, early: gone}
}

func (p pair) unreliable() pair { p.lossless = true; return p }

// long returns the row of a program that transfers too much data for a network with losses.
func (p pair) long() pair { p.lossless = true; return p }

// everywhere returns the row of a program that represents its kind, and so runs under every condition.
func (p pair) everywhere() pair { p.broad = true; return p }

// silent returns the row of a program whose output at the end does not show success.
func (p pair) silent() pair { p.good = nil; return p }

// managed returns the row of a program of perftest that connects by rdma_cm. Such a program prints that it waits for
// a client, but stdout is buffered, and it listens some time later.
func (p pair) managed() pair {
	p.tcp, p.up, p.env = false, regexp.MustCompile(`Waiting for client`), []string{"stdbuf", "-oL"}
	return p
}

// pairs are the programs. Package interop also runs rdma-core's examples against Linux.
var pairs = []pair{
	pingpong("rc", "").everywhere(), pingpong("rc", "-e"), pingpong("srq", "").everywhere(), pingpong("xsrq", "").silent(),
	pingpong("uc", "").unreliable(), pingpong("ud", "-s 1024").unreliable(),
	perftest("ib_send_bw", "-n 1000").everywhere(), perftest("ib_send_bw", "-a -n 100").long(), perftest("ib_send_bw", "-q 16 -n 50"), perftest("ib_send_bw", "-e -n 500"),
	perftest("ib_send_bw", "-b -n 500"), perftest("ib_send_bw", "--use-srq -n 500"), perftest("ib_send_bw", "-R -n 500").managed().everywhere(),
	perftest("ib_send_bw", "-c UC -t 4 -n 100").unreliable(), perftest("ib_send_bw", "-c UD -t 4 -s 1024 -n 100").unreliable(), perftest("ib_send_bw", "-c XRC -n 500"),
	perftest("ib_write_bw", "-n 500").everywhere(), perftest("ib_write_bw", "-a -n 50").long(), perftest("ib_write_bw", "-b -q 4 -n 200"), perftest("ib_write_bw", "-R -n 200").managed(),
	perftest("ib_read_bw", "-n 500").everywhere(), perftest("ib_read_bw", "-a -n 50").long(), perftest("ib_read_bw", "-b -n 200"),
	perftest("ib_atomic_bw", "-A FETCH_AND_ADD -n 500").everywhere(), perftest("ib_atomic_bw", "-A CMP_AND_SWAP -n 500"),
	perftest("ib_send_lat", "-n 500").everywhere(), perftest("ib_send_lat", "-R -n 200").managed(), perftest("ib_write_lat", "-n 500").everywhere(), perftest("ib_read_lat", "-n 500"), perftest("ib_atomic_lat", "-n 500"),
	{name: "rping", broad: true, server: "rping -s -a {self} -p 7303 -C 50 -S 5000 -V", client: "rping -c -a {peer} -p 7303 -C 50 -S 5000 -V", port: 7303, early: regexp.MustCompile(`.?`),
		// One thread destroys the event channel and frees memory that the other still reads.
		mistake: regexp.MustCompile(`(?s)^segmentation fault.*DISCONNECT EVENT|DISCONNECT EVENT.*rdma_get_cm_event: `)},
	{name: "ucmatose", broad: true, server: "ucmatose -b {self} -c 4 -C 20 -S 3000 -p 7304", client: "ucmatose -s {peer} -c 4 -C 20 -S 3000 -p 7304", port: 7304, good: regexp.MustCompile(`return status 0`)},
	{name: "udaddy", broad: true, server: "udaddy -b {self} -c 4 -C 20 -S 1024", client: "udaddy -s {peer} -c 4 -C 20 -S 1024", port: 7174, good: regexp.MustCompile(`return status 0`), lossless: true},
	{name: "mckey", broad: true, server: "mckey -m 239.77.1.2 -b {self} -C 20 -S 1024", client: "mckey -s -m 239.77.1.2 -b {self} -C 20 -S 1024",
		up: regexp.MustCompile(`joined dgid: ::ffff:239\.77\.1\.2`), good: regexp.MustCompile(`return status 0`), lossless: true, env: []string{"stdbuf", "-oL"}},
	{name: "rdma_client", broad: true, server: "rdma_server -s {self} -p 7305", client: "rdma_client -s {peer} -p 7305", port: 7305, good: regexp.MustCompile(`end 0`)},
	{name: "rdma_xclient", server: "rdma_xserver -p 7306", client: "rdma_xclient -s {peer} -p 7306", port: 7306, good: regexp.MustCompile(`end 0`), endless: true},
	{name: "cmtime", server: "cmtime -b {self} -p 7307", client: "cmtime -s {peer} -p 7307 -c 50", port: 7307, good: regexp.MustCompile(`destroying id`), endless: true},
	rsocket("rstream", "-T v").everywhere(), rsocket("rstream", "-T b -T v"), rsocket("rstream", "-T n -T v"), rsocket("rstream", "-T a -T v"), rsocket("riostream", "-T v"),
	datagrams("-C 300").everywhere(), datagrams("-C 300 -T b"), datagrams("-C 300 -T a"), echoes("-C 50"), echoes("-C 50 -T b"), echoes("-C 50 -T a"), datagrams("-C 300").over6(),
	{name: "iperf3", broad: true, server: "iperf3 -s -1 -B {self} -p 7312", client: "iperf3 -c {peer} -p 7312 -n 20M", port: 7312, good: regexp.MustCompile(`receiver`), env: []string{"env", "LD_PRELOAD=" + rspreload}},
	{name: "fi_pingpong msg", broad: true, server: "fi_pingpong -p verbs -e msg -B 7308 -I 100", client: "fi_pingpong -p verbs -e msg -P 7308 -I 100 {peer}", port: 7308, tcp: true, good: regexp.MustCompile(`(?m)^1m? +`), early: gone, either: true},
	{name: "fi_pingpong rdm", server: "fi_pingpong -p verbs;ofi_rxm -e rdm -B 7309 -I 100", client: "fi_pingpong -p verbs;ofi_rxm -e rdm -P 7309 -I 100 {peer}", port: 7309, tcp: true},
	ucx("rc_v", "tag_lat").everywhere(), ucx("rc_v", "tag_bw"), ucx("ud_v", "tag_lat"), ucx("rc_v", "ucp_put_bw"), ucx("rc_v", "ucp_get"),
}

// rsocket is a program of rdmacm-utils over rsockets.
func rsocket(program, flags string) pair {
	p := program + " -p 7311 -S 16384 -I 2 -C 100 " + flags
	return pair{name: program + " " + flags, server: p + " -b {self}", client: p + " -s {peer}", port: 7311, good: regexp.MustCompile(`(?m)^custom .*\d$`)}
}

// datagrams is udpong over datagram rsockets. The client sends datagrams, of which some may be lost, and asks the server
// for their number. It repeats the question, and never ends if nothing comes.
func datagrams(flags string) pair {
	p := "udpong -p 7314 -S 1000 " + flags
	return pair{name: "udpong " + flags, server: p + " -b {self}", client: p + " -s {peer}", port: 7314, udp: true, good: regexp.MustCompile(`(?m)^custom .*\d$`), endless: true}
}

// over6 is for a program that runs over IPv6, too.
func (p pair) over6() pair {
	to6 := strings.NewReplacer("{self}", "{self6}", "{peer}", "{peer6}")
	p.name, p.server, p.client = p.name+" IPv6", to6.Replace(p.server), to6.Replace(p.client)
	return p
}

// echoes is udpong with a server that returns each datagram. The client repeats what does not come back within a
// millisecond. If it then gets an echo twice and loses the next datagram, it repeats the wrong one for ever.
func echoes(flags string) pair {
	p := datagrams(flags + " -T e")
	p.lossless = true
	return p
}

// ucx is a test of ucx_perftest over a transport.
func ucx(transport, test string) pair {
	p := "ucx_perftest -t " + test + " -n 1000 -s 4096 -p 7310"
	return pair{name: "ucx " + transport + " " + test, server: p, client: p + " {peer}", port: 7310, tcp: true, endless: false,
		env: []string{"env", "UCX_TLS=" + transport + ",self", "UCX_LOG_LEVEL=warn"}}
}

var all = flag.Bool("programs.all", false, "run every program under every condition")

// TestPairs runs each program without losses over udp. One program of every kind also runs over raw and xdp, and
// with lost or duplicated packets.
func TestPairs(t *testing.T) {
	needs(t, "ibv_rc_pingpong", "rping", "ib_send_bw", "fi_pingpong", "ucx_perftest", "ss")
	a, b := hosts(t, 4200)
	for _, p := range pairs {
		t.Run(strings.ReplaceAll(p.name, " ", "_"), func(t *testing.T) {
			for _, c := range conditions {
				if c.name != conditions[0].name && !p.broad && !*all || p.lossless && c.harms || c.name == "xdp" && !p.tcp && !p.udp && p.up == nil { // the kernel lists no services of xdp
					continue
				}
				t.Run(c.name, func(t *testing.T) { p.run(t, a, b, c) })
			}
		})
	}
}

// run runs one program: the server on a, the client on b.
func (p pair) run(t *testing.T, a, b host, c condition) {
	limit := cmp.Or(p.limit, time.Minute)
	argv := func(line string, self, peer host) []string {
		return append(append([]string{}, p.env...), strings.Fields(strings.NewReplacer("{self}", self.ip4, "{peer}", peer.ip4, "{self6}", self.ip6, "{peer6}", peer.ip6).Replace(line))...)
	}
	s := a.start(t, c.flags, argv(p.server, a, b)...)
	defer func() {
		if s.Running() {
			s.Signal(9)
			s.Wait(t.Context())
		}
	}()
	if p.up != nil {
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		if err := s.WaitFor(ctx, p.up); err != nil {
			t.Fatalf("%s: %v\n%s", s.Line, err, s.Output())
		}
	} else if p.udp {
		a.bound(t, s, p.port)
	} else {
		a.listening(t, s, p.tcp, p.port)
	}
	cl := b.start(t, c.flags, argv(p.client, b, a)...)
	early := c.harms && p.early != nil // the end that exits first does not repeat its last acknowledgement
	left := early && p.either && excused(t, cl, limit, p.early)
	if !left {
		p.succeeds(t, cl, limit)
	}
	if p.endless || early && !left {
		return
	}
	p.succeeds(t, s, limit)
}

// succeeds waits for an end that must succeed.
func (p pair) succeeds(t *testing.T, end *proc.Proc, limit time.Duration) {
	if !excused(t, end, limit, p.mistake) {
		ended(t, end, limit)
	}
	if p.good != nil && !p.good.MatchString(end.Output()) {
		t.Errorf("%s: its output lacks %q:\n%s", end.Line, p.good, end.Output())
	}
}
