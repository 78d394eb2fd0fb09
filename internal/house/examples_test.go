package house

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	goTest   = regexp.MustCompile("`go test ([^`]*)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Example)\w*)\(`)
)

// The commands that examples/README.md gives name tests and examples that there are.
func TestExampleCommands(t *testing.T) {
	dir := root(t)
	page, err := os.ReadFile(filepath.Join(dir, "examples", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := goTest.FindAllStringSubmatch(strings.ReplaceAll(string(page), `\|`, "|"), -1) // of a table
	if len(commands) == 0 {
		t.Error("found no command at all")
	}
	for _, m := range commands {
		args, module := strings.Fields(m[1]), dir
		if args[0] == "-C" {
			module, args = filepath.Join(dir, args[1]), args[2:]
		}
		files, err := filepath.Glob(filepath.Join(module, args[0], "*_test.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("`go test %s`: %s has no tests", m[1], args[0])
			continue
		}
		if len(args) == 1 {
			continue
		}
		if len(args) != 3 || args[1] != "-run" {
			t.Errorf("`go test %s`: want -run and a pattern behind the package", m[1])
			continue
		}
		var names []string
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range testFunc.FindAllSubmatch(text, -1) {
				names = append(names, string(f[1]))
			}
		}
		pattern, _, _ := strings.Cut(strings.Trim(args[2], "'"), "/") // a subtest is behind a slash
		alternatives := []string{pattern}
		if !strings.Contains(pattern, "(") { // each of them must be there
			alternatives = strings.Split(pattern, "|")
		}
		for _, a := range alternatives {
			if !slices.ContainsFunc(names, regexp.MustCompile(a).MatchString) {
				t.Errorf("`go test %s`: %s has no %s", m[1], args[0], a)
			}
		}
	}
}
