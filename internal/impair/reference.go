package impair

import (
	"maps"
	"slices"
)

// key is a key of rule files that sets a property of a fault.Rule.
type key struct {
	flag string // the name that fault.Rule.Set knows
	doc  string // for docs/impair.md
}

// matchKeys are the keys that select the packets of a rule. The reader handles one more, "direction", itself.
var matchKeys = map[string]*key{
	"connection":   {"conn", "the n-th connection that the bridge sees, from 1"},
	"opcode":       {"op", "name, number, pattern with `*`, or a list of them: `WRITE_*`, `[SEND_ONLY, 0x0c]`"},
	"qpn":          {"qpn", "destination queue pair number"},
	"psn":          {"psn", "PSN as on the wire"},
	"relative-psn": {"rel", "PSN relative to the first of the requester, from 0; responses have the numbers of the requests"},
	"iteration":    {"iter", "the n-th transmission of this PSN, from 1"},
	"source":       {"src", "source IP address"},
	"destination":  {"dst", "destination IP address"},
	"address":      {"addr", "source or destination IP address"},
	"after":        {"after", "not before this time since the bridge started: `2s`"},
	"until":        {"until", "only before this time since the bridge started"},
	"nth":          {"nth", "of the packets that match so far, act on the n-th, from 1"},
	"every":        {"every", "act on every n-th of them; with `nth`, from that on"},
	"count":        {"count", "act on so many; default: all, or one with `nth` alone"},
	"probability":  {"p", "act with this probability: `0.01`, `1%`"},
}

// parameterKeys are the keys that set the parameters of an action.
var parameterKeys = map[string]*key{
	"time":   {"time", "`delay`: how long; `reorder`: at most so long. Default 1 ms"},
	"jitter": {"jitter", "`delay`: random addition, up to this"},
	"by":     {"by", "`reorder`: how many packets overtake. Default 3"},
	"copies": {"copies", "`dup`: how many more. Default 1"},
	"bits":   {"bits", "`corrupt`: how many bits in a row are inverted, at most 32. Default 1"},
	"icrc":   {"icrc", "`corrupt`, `rewrite`: `right` or `wrong` afterwards. Default wrong after `corrupt`, right after `rewrite`"},
}

// keyNames returns the names of all keys, and those in more.
func keyNames(keys map[string]*key, more ...string) []string {
	return slices.AppendSeq(more, maps.Keys(keys))
}
