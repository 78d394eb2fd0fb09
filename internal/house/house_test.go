// Package house tests the rules of this repository: which package may import which, which packages and functions
// the sans-I/O packages must not use, and the form of files. See CONTRIBUTING.md.
package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/goroce/roce"

// layers has the layer of each sans-I/O package, as in ARCHITECTURE.md. A package may
// import only the standard library and packages of lower layers. A package in a
// subdirectory belongs to the layer of its parent.
var layers = map[string]int{
	"mono":              0,
	"errs":              0,
	"internal/fifo":     0,
	"bth":               1,
	"internal/deadline": 1,
	"internal/recent":   1,
	"bth/frame":         2,
	"mr":                3,
	"cq":                3,
	"qp":                4,
	"cm":                4,
}

// layerOf returns the sans-I/O package that dir is or belongs to.
func layerOf(dir string) (name string, layer int, ok bool) {
	for d := dir; d != "."; d = path.Dir(d) {
		if f, ok := layers[d]; ok {
			return d, f, true
		}
	}
	return "", 0, false
}

// above lists, for the packages between the sans-I/O packages and the public objects, the higher
// packages that they must not import. ARCHITECTURE.md has the table of packages.
var above = map[string][]string{
	"link":           {"", "internal/route", "internal/nic", "internal/gsi", "internal/inside", "rdmacm"},
	"xdp":            {"", "internal/route", "internal/nic", "internal/gsi", "internal/inside", "rdmacm"},
	"internal/route": {"", "internal/nic", "internal/gsi", "internal/inside", "rdmacm"},
	"internal/nic":   {"", "cm", "internal/gsi", "internal/inside", "rdmacm"},
	"internal/gsi":   {"", "internal/inside", "rdmacm"},
	"rsocket":        {"internal/nic", "internal/gsi", "internal/route", "internal/inside"},
	"message":        {"internal/nic", "internal/gsi", "internal/route", "internal/inside"},
	"ofi":            {"internal/nic", "internal/gsi", "internal/route", "internal/inside"},
}

// maxRootFiles is how many files the root package has at most, tests aside: one for each
// public object.
const maxRootFiles = 25

// banned lists the packages of the standard library that the sans-I/O packages must not use. If it lists names, only these names of the
// package are banned.
var banned = map[string][]string{
	"time":         {"Now", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer", "Since", "Until"},
	"math/rand":    nil,
	"math/rand/v2": nil,
	"crypto/rand":  nil,
	"sync":         nil,
	"runtime":      {"Gosched", "Goexit", "LockOSThread", "NumGoroutine", "GC", "SetFinalizer", "AddCleanup"},
	"log":          nil,
	"log/slog":     nil,
	"net":          {"Dial", "DialUDP", "DialTimeout", "Dialer", "Listen", "ListenPacket", "ListenUDP", "Interfaces", "InterfaceByName", "InterfaceAddrs", "LookupHost", "LookupIP", "ResolveUDPAddr"},
	"os":           nil,
	"os/exec":      nil,
	"os/signal":    nil,
}

// atomics lists the sans-I/O packages that may use sync/atomic. In mr, shards look up keys while one of them changes the entry of
// a key, and peers and the program share memory. In cq, completions go from one producer to one consumer. In bth/frame, the next
// hop of a path changes while packets are sent along this path.
var atomics = []string{"mr", "cq", "bth/frame"}

// spins lists the files of sans-I/O packages in which one shard may wait while another one executes a few instructions. It yields the
// processor meanwhile. No other code of these packages waits.
var spins = []string{"mr/grant.go"}

// maxLines and maxTestLines are the lengths beyond which a file is split by concern. There is
// no list of exceptions.
const (
	maxLines     = 600
	maxTestLines = 800
)

// sleepers lists the directories and files in which time.Sleep may take real time: drivers that wait for the kernel, a device whose
// driver cannot wait for packets, helpers of the tests of drivers and of whole systems, and benchmarks. Other tests may call time.Sleep
// only in a bubble of testing/synctest. Other code must not call it.
var sleepers = []string{"link/udp/", "link/raw/", "xdp/", "internal/xsk/", "internal/doze/", "internal/netlab/", "internal/scarce/",
	"internal/hostnet/", "internal/share/", "interop/", "bench/", "cverbs/tests/", "internal/nic/port.go", "internal/scenario/host_change_linux_test.go", "internal/scenario/host_outage_linux_test.go",
	"cmd/rocectl/pcap_netns_test.go", "internal/scenario/bench_rare_unix_test.go"}

// bubble matches in a test file whose time is not real: it uses testing/synctest, the bubble function of the tests of its package, or
// tooltest.Fuzz.
var bubble = regexp.MustCompile(`\bsynctest\.|\bbubble\(|\btooltest\.Fuzz\(`)

// words matches text that no file may contain: promises instead of facts, and places that readers
// cannot see.
var words = regexp.MustCompile(`\b(TODO|FIXME|XXX)\b|(?i)not (yet )?implemented|unimplemented|\bissue\s+#?\d|/home/|/root/`)

// source is a parsed Go file; name and dir are relative to the root, with slashes.
type source struct {
	name, dir string
	text      []byte
	file      *ast.File
	fset      *token.FileSet
	test      bool
}

func (s source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.name, s.fset.Position(n.Pos()).Line)
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Fatalf("this test runs in the repository: %v", err)
	}
	return dir
}

// eachFile calls f for every file that belongs to the project.
func eachFile(t *testing.T, f func(name string, text []byte)) {
	t.Helper()
	dir := root(t)
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			if slices.Contains([]string{".git", "bin", "interop/.cache", "interop/out"}, name) {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f(name, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sources parses every Go file of the module.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	eachFile(t, func(name string, text []byte) {
		if path.Ext(name) != ".go" || strings.Contains(name, "/testdata/") {
			return
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			t.Errorf("%v", err)
			return
		}
		all = append(all, source{
			name: name, dir: path.Dir(name), text: text, file: file, fset: fset,
			test: strings.HasSuffix(name, "_test.go"),
		})
	})
	if len(all) < 10 {
		t.Fatalf("found %d Go files: looking in the wrong place?", len(all))
	}
	return all
}

func importPath(i *ast.ImportSpec) string { return strings.Trim(i.Path.Value, `"`) }

// The layers: a sans-I/O package imports only packages of lower layers.
func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		own, layer, guarded := layerOf(s.dir)
		for _, i := range s.file.Imports {
			p := importPath(i)
			if strings.HasPrefix(p, "github.com/spf13/cobra") &&
				!slices.Contains([]string{"cmd", "examples", "interop", "bench"}, strings.Split(s.dir, "/")[0]) {
				t.Errorf("%s: %s must not depend on cobra: it is for programs", s.at(i), s.dir)
			}
			if !guarded {
				continue
			}
			local, ours := strings.CutPrefix(p, module+"/")
			switch {
			case ours:
				to, f, ok := layerOf(local)
				if !ok || f >= layer && to != own {
					t.Errorf("%s: %s (layer %d) must not import %s", s.at(i), s.dir, layer, p)
				}
			case p == module || strings.Contains(strings.Split(p, "/")[0], "."):
				t.Errorf("%s: %s must import only std and lower layers, not %s", s.at(i), s.dir, p)
			case p == "C":
				t.Errorf("%s: cgo", s.at(i))
			}
		}
	}
}

// The packages above: none imports a higher one, and the root package contains public objects
// only.
func TestHigherPackages(t *testing.T) {
	seen, files := map[string]bool{}, 0
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		if s.dir == "." {
			files++
		}
		for room, banned := range above {
			if s.dir != room && !strings.HasPrefix(s.dir, room+"/") {
				continue
			}
			seen[room] = true
			for _, i := range s.file.Imports {
				p := importPath(i)
				local, ours := strings.CutPrefix(p, module+"/")
				if p == module {
					local, ours = "", true
				}
				if ours && slices.Contains(banned, local) {
					t.Errorf("%s: %s must not import %s, which is a higher or unrelated package", s.at(i), s.dir, p)
				}
			}
		}
	}
	for room := range above {
		if !seen[room] {
			t.Errorf("%s has no files: mend the table", room)
		}
	}
	if files > maxRootFiles {
		t.Errorf("the root package has %d files, at most %d: code that is not a public object belongs in a package under internal/", files, maxRootFiles)
	}
}

// The sans-I/O contract: time and randomness are arguments, and the caller of the package owns goroutines
// and locks.
func TestSansIO(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range sources(t) {
		own, _, guarded := layerOf(s.dir)
		if !guarded || s.test {
			continue
		}
		seen[own] = true
		local := make(map[string][]string) // name of an import in this file → banned names
		for _, i := range s.file.Imports {
			p := importPath(i)
			if i.Name != nil && i.Name.Name == "." {
				t.Errorf("%s: a dot import hides what it uses", s.at(i))
			}
			if p == "sync/atomic" && !slices.Contains(atomics, own) {
				t.Errorf("%s: %s must not use package %s: its callers take care that one goroutine at a time is in it", s.at(i), s.dir, p)
			}
			names, ok := banned[p]
			if !ok || p == "runtime" && slices.Contains(spins, s.name) {
				continue
			}
			if names == nil {
				t.Errorf("%s: %s must not use package %s", s.at(i), s.dir, p)
				continue
			}
			as := path.Base(p)
			if i.Name != nil {
				as = i.Name.Name
			}
			local[as] = names
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: %s must not start a goroutine", s.at(n), s.dir)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && slices.Contains(local[x.Name], n.Sel.Name) {
					t.Errorf("%s: %s must not call %s.%s", s.at(n), s.dir, x.Name, n.Sel.Name)
				}
			}
			return true
		})
	}
	for name := range layers {
		if !seen[name] {
			t.Errorf("found no file of package %s: has it moved?", name)
		}
	}
}

// Every package has a doc comment.
func TestPackageDocs(t *testing.T) {
	documented := make(map[string]bool)
	for _, s := range sources(t) {
		if s.file.Name.Name == "main" || !s.test {
			documented[s.dir] = documented[s.dir] || s.file.Doc != nil
		}
	}
	for dir, ok := range documented {
		if !ok {
			t.Errorf("package %s has no doc comment", dir)
		}
	}
}

// Files are short, and formatted by gofmt.
func TestFiles(t *testing.T) {
	for _, s := range sources(t) {
		limit := maxLines
		if s.test {
			limit = maxTestLines
		}
		if n := bytes.Count(s.text, []byte("\n")); n > limit {
			t.Errorf("%s has %d lines, more than %d: split it by concern", s.name, n, limit)
		}
		formatted, err := format.Source(s.text)
		if err != nil {
			t.Errorf("%s: %v", s.name, err)
		} else if !bytes.Equal(formatted, s.text) {
			t.Errorf("%s: gofmt would change it", s.name)
		}
	}
}

// Only the code in sleepers sleeps in real time.
func TestSleep(t *testing.T) {
	may := func(s source) bool {
		return slices.ContainsFunc(sleepers, func(p string) bool { return strings.HasPrefix(s.name, p) }) || s.test && bubble.Match(s.text)
	}
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if x, ok := n.(*ast.SelectorExpr); ok && fmt.Sprint(x.X) == "time" && x.Sel.Name == "Sleep" && !may(s) {
				t.Errorf("%s: time.Sleep takes real time here: wait for the event itself, or use testing/synctest", s.at(n))
			}
			return true
		})
	}
}

// No file of the repository contains one of words.
func TestWords(t *testing.T) {
	eachFile(t, func(name string, text []byte) {
		if name == "internal/house/house_test.go" || bytes.IndexByte(text[:min(len(text), 8000)], 0) >= 0 {
			return
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			if w := words.Find(line); w != nil {
				t.Errorf("%s:%d: %q does not belong in the product", name, i+1, w)
			}
		}
	})
}

// The first Go block of the README is a program that compiles.
func TestReadmeExample(t *testing.T) {
	dir := root(t)
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)\n```go\n(.*?)\n```\n").FindSubmatch(readme)
	if m == nil {
		t.Fatal("README.md has no ```go block")
	}
	example := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(example, m[1], 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"vet", example}, {"build", "-o", os.DevNull, example}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("go %s: %v\n%s\nthe example:\n%s", args[0], err, out, m[1])
		}
	}
}
