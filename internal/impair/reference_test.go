package impair

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/roce/link/fault"
)

// table returns the rows of the keys for a Markdown table.
func table(keys map[string]*key) (rows []string) {
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		rows = append(rows, fmt.Sprintf("| `%s` | %s |", name, keys[name].doc))
	}
	return rows
}

// TestReference: docs/impair.md has every key, action and field, as the code has them.
func TestReference(t *testing.T) {
	page, err := os.ReadFile("../../docs/impair.md")
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	for _, f := range fault.Fields() {
		fields = append(fields, fmt.Sprintf("| `%s` | %s | %d |", f, f.Header(), f.Bits()))
	}
	for name, rows := range map[string][]string{"match": table(matchKeys), "parameters": table(parameterKeys), "fields": fields} {
		if want := strings.Join(rows, "\n"); !strings.Contains(string(page), want) {
			t.Errorf("docs/impair.md lacks the table of %s:\n%s", name, want)
		}
	}
	for _, name := range fault.ActionNames() {
		if !strings.Contains(string(page), "| `"+name+"` |") {
			t.Errorf("docs/impair.md lacks the action %s", name)
		}
	}
	// The flags have the same properties as the files, by shorter names.
	for _, keys := range []map[string]*key{matchKeys, parameterKeys} {
		for name, k := range keys {
			if !slices.Contains(fault.RuleNames(), k.flag) {
				t.Errorf("%s sets %s, which rules do not have", name, k.flag)
			}
		}
	}
	if n := len(matchKeys) + len(parameterKeys); n != len(fault.RuleNames()) {
		t.Errorf("files have %d keys, flags %d: %v", n, len(fault.RuleNames()), fault.RuleNames())
	}
}

// TestExample: the example of docs/impair.md is a rule file.
func TestExample(t *testing.T) {
	page, err := os.ReadFile("../../docs/impair.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```yaml\n")
	text, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("docs/impair.md has no example")
	}
	file, err := Parse("docs/impair.md", []byte(text))
	if err != nil || len(file.Rules) == 0 {
		t.Errorf("%v", err)
	}
}
