package perftest

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/goroce/roce"
)

// Config are the options of perftest's programs. [Test.Config] has the defaults.
type Config struct {
	Test       Test
	Service    roce.QPType   // -c
	Atomic     AtomicType    // -A
	Size       int           // bytes of a message (-s)
	All        bool          // instead: sizes from 2 to 2^23, of datagrams to the MTU (-a)
	Iters      int           // messages of each queue pair (-n)
	Duration   time.Duration // instead of Iters: how long (-D); 0: Iters
	Margin     time.Duration // of the duration, what does not count at either end (-f); negative: a quarter
	QPs        int           // queue pairs (-q)
	Both       bool          // both ends send at the same time (-b)
	TxDepth    int           // messages under way on a queue pair (-t)
	RxDepth    int           // receives kept posted on each (-r)
	OutReads   int           // READs and atomics under way, and answered at a time (-o)
	PostList   int           // work requests posted with one call (-l)
	CQMod      int           // one completion for as many messages (-Q); 0: perftest's rule
	InlineSize int           // messages up to this size are sent inline (-I); negative: perftest's default
	MTU        roce.MTU      // path MTU (-m); 0: the port's
	GIDIndex   int           // own address (-x); negative: one that suits the peer
	Timeout    uint8         // ACK timeout code of the queue pair (-u)
	NoPeak     bool          // look for no peak (-N)
	Gbits      bool          // report gigabits instead of mebibytes a second (--report_gbits)
	Unsorted   bool          // print every latency, in order (-U)
	Histogram  bool          // print every latency, sorted (-H)

	// Poll says that the device is a polled one: completions are looked for without
	// sleeping, and whatever else is waited for, the device is driven meanwhile.
	Poll bool
	// CM: the connection manager makes the connections, and the exchange goes over one
	// of its own (-R).
	CM bool
	// Events: sleep until a completion comes even if Poll is set (-e).
	Events bool
	// SplitWrites is that of roce.QPConfig. perftest has no such option, and its end does
	// not notice.
	SplitWrites bool
	// Check compares the data, as far as one end can, and has the operations do what
	// can be checked. It takes time, which counts.
	Check bool

	Out io.Writer // where the course of things is printed; nil: nowhere

	silent bool // tests: tell no flags, as perftest
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
	maxMemory    = 1 << 30 // for all that is under way
	maxOutReads  = 128
	maxSizeShift = 23
	maxSize      = 1 << maxSizeShift

	defaultRxDepth    = 512
	defaultDepthUnrel = 16000 // receives for an unreliable service, if there are as many messages
	defaultCQMod      = 100
	unmoderatedSize   = 8192 // larger messages complete each, unless told otherwise
	inlineUD          = 188
)

// Config returns what the program does without flags.
func (t Test) Config() Config {
	c := Config{Test: t, Service: roce.RC, Atomic: FetchAndAdd, Size: t.Size, Iters: t.Iters, Margin: -1, QPs: 1, TxDepth: 128, RxDepth: 1,
		OutReads: maxOutReads, PostList: 1, InlineSize: -1, GIDIndex: -1, Timeout: 14}
	if t.Latency {
		c.TxDepth = 1
	}
	if t.twoSided {
		c.RxDepth = defaultRxDepth
	}
	return c
}

// check judges what can be judged without the peer, and fills in what depends on
// other options.
func (c *Config) check(d *roce.Device) error {
	active := d.Query().PathMTU
	if c.MTU == 0 {
		c.MTU = active
	}
	if err := c.complain(); err != nil {
		return fmt.Errorf("perftest: %w", err)
	}
	if !c.MTU.Valid() || c.MTU > active {
		return fmt.Errorf("perftest: path MTU %v: want 256, 512, 1024, 2048 or 4096, at most the port's %v", c.MTU, active)
	}
	c.settle()
	if c.Out == nil {
		c.Out = io.Discard
	}
	return c.fits()
}

// complain says which option makes no sense.
func (c *Config) complain() error {
	t := &c.Test
	between := func(what string, v, low, high int) error {
		if v < low || v > high {
			return fmt.Errorf("%s %d: want %d to %d", what, v, low, high)
		}
		return nil
	}
	for _, r := range []struct {
		what         string
		v, low, high int
	}{
		{"messages (-n)", c.Iters, minIters, maxIters}, {"TX depth", c.TxDepth, 1, maxTxDepth}, {"RX depth", c.RxDepth, 1, maxRxDepth},
		{"outstanding READs and atomics", c.OutReads, 1, maxOutReads}, {"size", c.Size, 1, maxSize}, {"queue pairs", c.QPs, 1, maxQPs},
		{"post list", c.PostList, 1, maxTxDepth}, {"CQ moderation", c.CQMod, 0, maxCQMod}, {"inline size", c.InlineSize, -1, maxInline},
	} {
		if err := between(r.what, r.v, r.low, r.high); err != nil {
			return err
		}
	}
	for _, r := range []struct {
		wrong bool
		what  string
	}{
		{!slices.Contains(t.types, c.Service), fmt.Sprintf("%v: %s knows %s", c.Service, t.Name, t.Services())},
		{t.Fixed && (c.Size != t.Size || c.All), fmt.Sprintf("size %d: %s has %d only", c.Size, t.Name, t.Size)},
		{c.CM && c.Service != roce.RC, fmt.Sprintf("%v: with the connection manager (-R) only RC", c.Service)},
		{t.Latency && c.QPs > 1, "several queue pairs (-q): only in bandwidth tests"},
		{t.Latency && c.Both, "both ways at once (-b): only in bandwidth tests"},
		{t.Latency && c.PostList > 1, "a post list (-l): only in bandwidth tests"},
		{!t.Latency && (c.Unsorted || c.Histogram), "every result (-U, -H): only in latency tests"},
		{t.reads && c.InlineSize > 0, "inline data (-I): READs and atomics have none"},
		{t.Watches() && c.Events, "events (-e): a WRITE that arrives makes none"},
		{c.Duration < 0, fmt.Sprintf("duration %v: want a positive one", c.Duration)},
		{c.Duration > 0 && c.All, "a duration (-D) cannot be had of all sizes (-a)"},
		{c.Duration > 0 && c.Events, "a duration (-D) cannot be had with events (-e)"},
		{c.Duration > 0 && c.Check && t.access == roce.RemoteAtomic, "a duration (-D): how many atomics there were would not be known, so they cannot be checked"},
		{c.Duration > 0 && c.Duration <= 2*c.Margin, fmt.Sprintf("duration %v: want more than twice the margin of %v", c.Duration, c.Margin)},
		{c.Duration == 0 && c.Iters%c.PostList != 0, fmt.Sprintf("%d messages: want a multiple of the post list's %d", c.Iters, c.PostList)},
		{c.PostList > 1 && c.CQMod > 0 && c.PostList%c.CQMod != 0, fmt.Sprintf("post list %d: want a multiple of the CQ moderation's %d", c.PostList, c.CQMod)},
		{c.PostList > c.TxDepth, fmt.Sprintf("post list %d: larger than the TX depth of %d", c.PostList, c.TxDepth)},
	} {
		if r.wrong {
			return fmt.Errorf("%s", r.what)
		}
	}
	return nil
}

// settle fills in what was left open, by perftest's rules.
func (c *Config) settle() {
	t := &c.Test
	unreliable := c.Service != roce.RC
	if c.Duration > 0 {
		c.NoPeak = true
		if c.Margin < 0 {
			c.Margin = c.Duration / 4 / time.Second * time.Second
		}
	} else {
		c.TxDepth = min(c.TxDepth, c.Iters)
		if t.twoSided && unreliable && c.RxDepth == defaultRxDepth {
			c.RxDepth = min(c.Iters, defaultDepthUnrel) // what finds no receive is lost
		}
		if t.twoSided {
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
		if c.InlineSize = t.inline; c.Service == roce.UD {
			c.InlineSize = min(t.inline, inlineUD)
		}
	}
	if c.All {
		c.Size = maxSize
	}
}

// fits says whether there is memory enough.
func (c *Config) fits() error {
	need := c.Size
	if c.Service == roce.UD {
		need = min(need, c.MTU.Bytes())
	}
	if c.Check {
		need *= max(c.TxDepth, c.RxDepth)
	}
	if need*c.QPs > maxMemory {
		return fmt.Errorf("perftest: size %d, %d queue pairs, %d sent and %d received at a time: that takes more than %d bytes", c.Size, c.QPs, c.TxDepth, c.RxDepth, maxMemory)
	}
	return nil
}

// sizes are those to go through; mtu is the largest datagram.
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
