package wireshark

import (
	"strings"
	"testing"

	"github.com/goroce/roce/bth"
)

// The plugin has each header of the opcode table, in the order of the table, and each field is inside its header.
func TestHeaders(t *testing.T) {
	var all bth.HeaderSet
	for i, h := range extended {
		if h.set != 1<<i {
			t.Errorf("%s is %#x, want %#x: the order is that of bth.HeaderSet", h.name, h.set, 1<<i)
		}
		all |= h.set
		for _, f := range h.fields {
			if f.at+f.size > h.len {
				t.Errorf("%s.%s ends at byte %d of %d", h.name, f.name, f.at+f.size, h.len)
			}
			if (f.show == named) != (len(values(f.name)) > 0) {
				t.Errorf("%s.%s: shown by name: %v, %d names", h.name, f.name, f.show == named, len(values(f.name)))
			}
		}
	}
	for op := range 256 {
		info := bth.Opcode(op).Info()
		if info.Headers&^all != 0 {
			t.Errorf("%v has headers that are not described: %#x", bth.Opcode(op), info.Headers&^all)
		}
		n := bth.BTHLen
		for _, h := range extended {
			if info.Headers&h.set != 0 {
				n += h.len
			}
		}
		if n != int(info.HeaderLen) {
			t.Errorf("%v: %d bytes of headers are described, %d are there", bth.Opcode(op), n, info.HeaderLen)
		}
	}
}

// Fields of the same name in several headers are one field in the plugin, so they must be equal.
func TestSharedFields(t *testing.T) {
	seen := map[string]field{}
	for _, h := range append([]header{{fields: base}}, extended...) {
		for _, f := range h.fields {
			was, ok := seen[f.name]
			seen[f.name] = f
			was.at = f.at
			if ok && was != f {
				t.Errorf("%s is %+v and %+v", f.name, was, f)
			}
		}
	}
}

// A version with a line break stays in its comment.
func TestVersionIsAComment(t *testing.T) {
	var b strings.Builder
	if err := WritePlugin(&b, "v1\nerror()"); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "error()") {
			t.Errorf("%q is code", line)
		}
	}
}
