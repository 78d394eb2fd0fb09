package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	commandText = regexp.MustCompile("`([^`]*)`")
	testName    = regexp.MustCompile(`^(?:Test|Example)`)
	anySubtest  = regexp.MustCompile(`^[.*]*$`)
)

// A part of examples/README.md leads from the documents to the code. Each row of its tables has a command and no empty cell, and each
// command runs tests, examples and subtests that exist.
func TestExampleCommands(t *testing.T) {
	dir := root(t)
	page, err := os.ReadFile(filepath.Join(dir, "examples", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, part, ok := strings.Cut(string(page), "\n# From the documents to the code\n")
	if !ok {
		t.Fatal("there is no part that leads from the documents to the code")
	}
	tests := testIndex{}
	rows := 0
	inTable := false
	for line := range strings.Lines(part) {
		line = strings.TrimSpace(line)
		isRow := strings.HasPrefix(line, "|")
		cells := cellsOf(line)
		switch {
		case !isRow:
			inTable = false
			for _, m := range commandText.FindAllStringSubmatch(line, -1) { // of the text around the tables
				if strings.HasPrefix(m[1], "go test ") {
					tests.check(t, dir, m[1])
				}
			}
			continue
		case !inTable:
			if inTable = true; cells[len(cells)-1] != "command" {
				t.Errorf("the last column of the table %q is not its commands", line)
			}
			continue
		case strings.HasPrefix(line, "|---"):
			continue
		}
		rows++
		commands := commandText.FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(commands) == 0 {
			t.Errorf("the row %q has no command", line)
		}
		for _, m := range commands {
			tests.check(t, dir, m[1])
		}
		for _, cell := range cells {
			if cell == "" || cell == "–" {
				t.Errorf("the row %q has an empty cell", line)
			}
		}
	}
	if rows < 100 {
		t.Errorf("found %d rows, the documents have more chapters", rows)
	}
}

// cellsOf returns the cells of a row. \| is a character of a cell.
func cellsOf(line string) []string {
	cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, "\x00"), "|"), "|")
	for i, c := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(c, "\x00", "|"))
	}
	return cells
}

// testIndex has the tests of each directory.
type testIndex map[string]*testSet

// testSet is the tests of a directory.
type testSet struct {
	names    []string // of tests and examples
	subtests []string // possible names of subtests: the string literals in the tests, and the names of files in the directory
}

// check checks that a command runs a test that exists.
func (x testIndex) check(t *testing.T, dir, command string) {
	t.Helper()
	args, isTest := strings.CutPrefix(command, "go test ")
	if !isTest {
		t.Errorf("`%s`: want go test", command)
		return
	}
	words, module := strings.Fields(args), dir
	if words[0] == "-C" {
		module, words = filepath.Join(dir, words[1]), words[2:]
	}
	tests := x.of(t, filepath.Join(module, words[0]))
	if len(tests.names) == 0 {
		t.Errorf("`%s`: %s has no tests", command, words[0])
		return
	}
	if len(words) == 1 {
		return
	}
	if len(words) != 3 || words[1] != "-run" {
		t.Errorf("`%s`: want -run and a pattern behind the package", command)
		return
	}
	pattern := strings.Trim(words[2], "'")
	patterns := []string{pattern}
	if !strings.Contains(pattern, "(") { // each alternative must exist
		patterns = strings.Split(pattern, "|")
	}
	for _, p := range patterns {
		test, sub, _ := strings.Cut(p, "/")
		if !slices.ContainsFunc(tests.names, regexp.MustCompile(test).MatchString) {
			t.Errorf("`%s`: %s has no %s", command, words[0], test)
		}
		for _, s := range alternatives(sub) {
			if !tests.hasSubtest(s) {
				t.Errorf("`%s`: %s has no subtest %s", command, words[0], s)
			}
		}
	}
}

// hasSubtest reports whether a pattern selects a subtest. The name of a subtest may consist of two names with "_and_" between them.
func (s *testSet) hasSubtest(pattern string) bool {
	if first, last, both := strings.Cut(pattern, and); both && slices.Contains(s.subtests, and) {
		return s.hasSubtest(first) && s.hasSubtest(last)
	}
	return anySubtest.MatchString(pattern) || slices.ContainsFunc(s.subtests, regexp.MustCompile(pattern).MatchString)
}

const and = "_and_"

// alternatives splits a pattern into its alternatives: "(a|b)" and "a|b" have two.
func alternatives(pattern string) []string {
	inner := pattern
	end := ""
	if s, ok := strings.CutSuffix(inner, "$"); ok {
		inner, end = s, "$"
	}
	if s, ok := strings.CutPrefix(inner, "("); ok && strings.HasSuffix(s, ")") {
		inner = s[:len(s)-1]
	} else {
		end = ""
		inner = pattern
	}
	depth, from := 0, 0
	var all []string
	for i, c := range inner + "|" {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '|' && depth == 0:
			all, from = append(all, inner[from:i]+end), i+1
		}
	}
	return all
}

// of returns the tests of a directory.
func (x testIndex) of(t *testing.T, dir string) *testSet {
	t.Helper()
	if s := x[dir]; s != nil {
		return s
	}
	s := new(testSet)
	x[dir] = s
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		base := d.Name()
		s.subtests = append(s.subtests, strings.TrimSuffix(base, filepath.Ext(base)))
		if filepath.Dir(name) != filepath.Clean(dir) || !strings.HasSuffix(base, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && testName.MatchString(n.Name.Name) {
					s.names = append(s.names, n.Name.Name)
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					if text, err := strconv.Unquote(n.Value); err == nil {
						s.subtests = append(s.subtests, strings.ReplaceAll(text, " ", "_"))
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Errorf("%s: %v", dir, err)
	}
	return s
}
