package perftest

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/usage"
)

// Config are the options of perftest's programs. [Test.Config] has the defaults.
type Config struct {
	Test       Test
	Service    roce.QPType   // -c
	Atomic     AtomicType    // -A
	Size       int           // bytes of a message (-s)
	All        bool          // test all sizes from 2 to 2^23 bytes, with UD to the path MTU (-a); Size is then ignored
	Iters      int           // messages of each queue pair (-n)
	Duration   time.Duration // length of the test (-D); 0: Iters messages
	Margin     time.Duration // part of the duration at either end that is not measured (-f); negative: a quarter
	QPs        int           // queue pairs (-q)
	Both       bool          // both ends send at the same time (-b)
	TxDepth    int           // messages in flight on a queue pair (-t)
	RxDepth    int           // receives kept posted on each (-r)
	OutReads   int           // READs and atomics in flight, each way (-o)
	PostList   int           // work requests posted with one call (-l)
	CQMod      int           // messages per completion (-Q); 0: perftest's rule
	InlineSize int           // messages up to this size are sent inline (-I); negative: perftest's default
	MTU        roce.MTU      // path MTU (-m); 0: the port's
	GIDIndex   int           // index of the local address (-x); negative: the first address of the peer's IP version
	Timeout    uint8         // ACK timeout code of the queue pair (-u)
	NoPeak     bool          // do not compute the peak (-N)
	Gbits      bool          // report gigabits instead of mebibytes a second (--report_gbits)
	Unsorted   bool          // print every latency, in order (-U)
	Histogram  bool          // print every latency, sorted (-H)

	// Poll says that the device is polled. The end busy-polls for completions, and calls
	// [roce.Device.Progress] when it waits for the peer's messages of the exchange.
	Poll bool
	// CM says that the connection manager makes the connections, also the one for the exchange (-R).
	CM bool
	// Events says that the end sleeps until a completion comes, even with Poll (-e).
	Events bool
	// SplitWrites is the value for [roce.QPConfig]. perftest has no such option. A peer that runs perftest does not
	// need to know of it.
	SplitWrites bool
	// Check compares the data as far as one end can do that, with operands that make it possible. The measured times
	// include the time for comparing.
	Check bool

	Out io.Writer // progress and tables; nil: nowhere

	// Connected is called for each queue pair that this end has connected out of band, with the addresses of both ends and the path
	// MTU. It may be nil.
	Connected func(local, remote Dest, mtu roce.MTU)

	silent bool // for tests: do not send flags to the peer; perftest does not, either
}

// Limits of the options: perftest's, and those of a queue pair.
const (
	minIters     = 5
	maxIters     = 100_000_000
	maxTxDepth   = 15000
	maxRxDepth   = 16384
	maxQPs       = 16384
	maxCQMod     = 1024
	maxInline    = 912
	maxMemory    = 1 << 30 // bytes for all messages in flight
	maxOutReads  = 128
	maxSizeShift = 23
	maxSize      = 1 << maxSizeShift

	defaultRxDepth    = 512
	defaultDepthUnrel = 16000 // receives for an unreliable service, if there are as many messages
	defaultCQMod      = 100
	unmoderatedSize   = 8192 // each message that is larger than this makes a completion
	inlineUD          = 188
)

// Config returns the options of the program without flags.
func (t Test) Config() Config {
	c := Config{Test: t, Service: roce.RC, Atomic: FetchAndAdd, Size: t.Size, Iters: t.Iters, Margin: -1, QPs: 1, TxDepth: 128, RxDepth: 1,
		OutReads: maxOutReads, PostList: 1, InlineSize: -1, GIDIndex: -1, Timeout: 14}
	if t.Latency {
		c.TxDepth = 1
	}
	if t.TwoSided {
		c.RxDepth = defaultRxDepth
	}
	return c
}

// Validate returns an error that names an invalid option. It does not know the device and the peer.
func (c *Config) Validate() error {
	t := &c.Test
	for _, r := range []struct {
		option       string
		v, low, high int
	}{
		{"messages (-n)", c.Iters, minIters, maxIters}, {"TX depth (-t)", c.TxDepth, 1, maxTxDepth}, {"RX depth (-r)", c.RxDepth, 1, maxRxDepth},
		{"READs and atomics in flight (-o)", c.OutReads, 1, maxOutReads}, {"size (-s)", c.Size, 1, maxSize}, {"queue pairs (-q)", c.QPs, 1, maxQPs},
		{"post list (-l)", c.PostList, 1, maxTxDepth}, {"CQ moderation (-Q)", c.CQMod, 0, maxCQMod}, {"inline size (-I)", c.InlineSize, -1, maxInline},
	} {
		if err := usage.Range(r.option, r.v, r.low, r.high); err != nil {
			return err
		}
	}
	for _, r := range []struct {
		wrong bool
		what  string
	}{
		{!slices.Contains(t.types, c.Service), fmt.Sprintf("-c %v: %s knows %s", c.Service, t.Name, t.Services())},
		{t.Fixed && (c.Size != t.Size || c.All), fmt.Sprintf("-s %d: %s has %d only", c.Size, t.Name, t.Size)},
		{c.CM && c.Service != roce.RC, fmt.Sprintf("-c %v: with the connection manager (-R) only RC", c.Service)},
		{t.Latency && c.QPs > 1, "several queue pairs (-q): only in bandwidth tests"},
		{t.Latency && c.Both, "both ways at once (-b): only in bandwidth tests"},
		{t.Latency && c.PostList > 1, "a post list (-l): only in bandwidth tests"},
		{!t.Latency && (c.Unsorted || c.Histogram), "every result (-U, -H): only in latency tests"},
		{t.Reads && c.InlineSize > 0, "inline data (-I): READs and atomics have none"},
		{t.Watches() && c.Events, "events (-e): a WRITE that arrives makes none"},
		{c.Duration < 0, fmt.Sprintf("-D %v: want a positive one", c.Duration)},
		{c.Duration > 0 && c.All, "a duration (-D) excludes all sizes (-a)"},
		{c.Duration > 0 && c.Events, "a duration (-D) excludes events (-e)"},
		{c.Duration > 0 && c.Check && t.access == roce.RemoteAtomic, "a duration (-D) of atomics: their number is not known, so they cannot be checked (--check)"},
		{c.Duration > 0 && c.Duration <= 2*c.Margin, fmt.Sprintf("-D %v: want more than twice the margin (-f) of %v", c.Duration, c.Margin)},
		{c.Duration == 0 && c.Iters%c.PostList != 0, fmt.Sprintf("-n %d: want a multiple of the post list's %d (-l)", c.Iters, c.PostList)},
		{c.PostList > 1 && c.CQMod > 0 && c.PostList%c.CQMod != 0, fmt.Sprintf("-l %d: want a multiple of the CQ moderation's %d (-Q)", c.PostList, c.CQMod)},
		{c.PostList > c.TxDepth, fmt.Sprintf("-l %d: larger than the TX depth of %d (-t)", c.PostList, c.TxDepth)},
	} {
		if r.wrong {
			return usage.Errorf("%s", r.what)
		}
	}
	return nil
}

// check validates the options for a device and fills in those that depend on it and on other
// options.
func (c *Config) check(d *roce.Device) error {
	if err := c.Validate(); err != nil {
		return err
	}
	active := d.Query().PathMTU
	c.MTU = cmp.Or(c.MTU, active)
	if !c.MTU.Valid() || c.MTU > active {
		return usage.Errorf("path MTU (-m) %v: want 256, 512, 1024, 2048 or 4096, at most the port's %v", c.MTU, active)
	}
	c.fillIn()
	if c.Out == nil {
		c.Out = io.Discard
	}
	need := c.Size
	if c.Service == roce.UD {
		need = min(need, c.MTU.Bytes())
	}
	if c.Check {
		need *= max(c.TxDepth, c.RxDepth)
	}
	if need*c.QPs > maxMemory {
		return usage.Errorf("-s %d -q %d -t %d -r %d: that takes more than %d bytes of memory", c.Size, c.QPs, c.TxDepth, c.RxDepth, maxMemory)
	}
	return nil
}

// fillIn sets the options without a value, by perftest's rules.
func (c *Config) fillIn() {
	t := &c.Test
	unreliable := c.Service != roce.RC
	if c.Duration > 0 {
		c.NoPeak = true
		if c.Margin < 0 {
			c.Margin = c.Duration / 4 / time.Second * time.Second
		}
	} else {
		c.TxDepth = min(c.TxDepth, c.Iters)
		if t.TwoSided && unreliable && c.RxDepth == defaultRxDepth {
			c.RxDepth = min(c.Iters, defaultDepthUnrel) // a message without a receive is lost
		}
		if t.TwoSided {
			c.RxDepth = min(c.RxDepth, c.Iters)
		}
		if c.Iters > maxPeak {
			c.NoPeak = true
		}
	}
	switch {
	case c.CQMod > 0:
	case c.PostList > 1:
		c.CQMod = c.PostList
	case c.Size > unmoderatedSize && c.Service != roce.UD && !c.All && !c.Events:
		c.CQMod = 1
	default:
		c.CQMod = defaultCQMod
	}
	c.CQMod = min(c.CQMod, c.TxDepth)
	if c.InlineSize < 0 {
		c.InlineSize = t.inline
		if c.Service == roce.UD {
			c.InlineSize = min(t.inline, inlineUD)
		}
	}
	if c.All {
		c.Size = maxSize
	}
}

// sizes returns the message sizes of the test. mtu is the largest datagram.
func (c *Config) sizes(mtu int) []int {
	if !c.All {
		return []int{c.Size}
	}
	var all []int
	for n := 1; n <= maxSizeShift; n++ {
		if c.Service == roce.UD && 1<<n > mtu {
			break
		}
		all = append(all, 1<<n)
	}
	return all
}
