package fault

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/goroce/roce/bth"
)

// OpcodeSet is a set of opcodes.
type OpcodeSet [4]uint64

// Add puts an opcode into the set.
func (s *OpcodeSet) Add(op bth.Opcode) { s[op>>6] |= 1 << (op & 63) }

// Has reports whether an opcode is in the set.
func (s *OpcodeSet) Has(op bth.Opcode) bool { return s[op>>6]>>(op&63)&1 != 0 }

func (s *OpcodeSet) empty() bool { return *s == OpcodeSet{} }

// String returns the names of the opcodes, joined by "|".
func (s *OpcodeSet) String() string {
	var names []string
	for _, op := range s.list() {
		names = append(names, opcodeName(op))
	}
	return strings.Join(names, "|")
}

// list returns the opcodes in ascending order.
func (s *OpcodeSet) list() (ops []bth.Opcode) {
	for op := range 256 {
		if s.Has(bth.Opcode(op)) {
			ops = append(ops, bth.Opcode(op))
		}
	}
	return ops
}

// ParseOpcodes adds opcodes to the set: one by its number or name, or all whose names match a pattern
// with "*". Upper and lower case are equal, so are all separators, and the prefix "RC" is optional.
func (s *OpcodeSet) ParseOpcodes(text string) error {
	if v, err := strconv.ParseUint(text, 0, 8); err == nil {
		s.Add(bth.Opcode(v))
		return nil
	}
	if len(text) > maxOpcodeName {
		return fmt.Errorf("unknown opcode %.20q… of %d bytes", text, len(text))
	}
	want := plainOpcode(text)
	found := false
	for op, name := range plainNames() {
		if name == "" {
			continue
		}
		whole, err := path.Match(want, name)
		if err != nil {
			return fmt.Errorf("%q is no pattern of opcodes", text)
		}
		short, _ := path.Match("RC"+want, name)
		if whole || short {
			s.Add(bth.Opcode(op))
			found = true
		}
	}
	if !found {
		return fmt.Errorf("unknown opcode %q", text)
	}
	return nil
}

// maxOpcodeName is longer than every name.
const maxOpcodeName = 64

// plainNames returns the names of all opcodes without separators; "" if an opcode has none.
var plainNames = sync.OnceValue(func() (names [256]string) {
	for op := range names {
		names[op] = plainOpcode(bth.Opcode(op).Info().Name)
	}
	return names
})

// plainOpcode is a name without separators.
func plainOpcode(s string) string {
	return strings.ToUpper(strings.NewReplacer("_", "", " ", "", "-", "").Replace(s))
}

// opcodeName is an opcode's name in rules: the table's, with underscores.
func opcodeName(op bth.Opcode) string {
	if n := op.Info().Name; n != "" {
		return strings.ReplaceAll(n, " ", "_")
	}
	return fmt.Sprintf("%#x", uint8(op))
}
