package house

import (
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// goName matches a Go name in docs/api.md.
var goName = regexp.MustCompile("`((?:rdmacm|rsocket)\\.)?([A-Z]\\w*)(?:\\.([A-Z]\\w*))?`")

// Every Go name in docs/api.md exists, and every C call is in docs/api.md once. The C calls are the functions that
// the map files of libibverbs and librdmacm export to programs, and the inline functions of their headers.
func TestAPI(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "docs", "api.md"))
	if err != nil {
		t.Fatal(err)
	}
	pkgs := load(t, module, module+"/rdmacm", module+"/rsocket")
	seen, calls := 0, make(map[string]bool)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], "--") || cells[1] == " C " {
			continue
		}
		for _, c := range strings.Split(cells[1], ",") {
			if c = strings.Trim(c, " `"); calls[c] {
				t.Errorf("%s is there twice", c)
			}
			calls[c] = true
		}
		names := goName.FindAllStringSubmatch(cells[2]+cells[3], -1)
		if ours := strings.TrimSpace(cells[2]); len(goName.FindAllString(ours, -1)) == 0 && (ours != "not there" || !strings.Contains(cells[3], "because ")) {
			t.Errorf("%s: no name, and no reason", line)
		}
		for _, n := range names {
			seen++
			p := pkgs[strings.TrimSuffix(module+"/"+strings.TrimSuffix(n[1], "."), "/")]
			o := p.Scope().Lookup(n[2])
			if o == nil {
				t.Errorf("%s does not exist", n[0])
				continue
			}
			if n[3] == "" {
				continue
			}
			if member, _, _ := types.LookupFieldOrMethod(types.NewPointer(o.Type()), true, p, n[3]); member == nil {
				t.Errorf("%s does not exist", n[0])
			}
		}
	}
	list, err := os.ReadFile("testdata/calls.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range strings.Fields(string(list)) {
		if !calls[c] {
			t.Errorf("%s is missing", c)
		}
		delete(calls, c)
	}
	for c := range calls {
		t.Errorf("%s is no call of libibverbs or librdmacm", c)
	}
	if seen < 100 {
		t.Errorf("found %d names only: has the table another form?", seen)
	}
}
