package house

import (
	"bytes"
	"go/constant"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// load loads the types of packages of the module from the export data of the go command.
func load(t *testing.T, paths ...string) map[string]*types.Package {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, paths...)...)
	list.Dir = root(t)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %v", list, err)
	}
	export := make(map[string]string)
	for line := range bytes.Lines(out) {
		path, file, _ := strings.Cut(strings.TrimSpace(string(line)), "\t")
		export[path] = file
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(export[path]) })
	all := make(map[string]*types.Package)
	for _, p := range paths {
		if all[p], err = imp.Import(p); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// constants returns the exported constants of a package, by name.
func constants(p *types.Package) map[string]*types.Const {
	all := make(map[string]*types.Const)
	for _, n := range p.Scope().Names() {
		if c, ok := p.Scope().Lookup(n).(*types.Const); ok && c.Exported() {
			all[n] = c
		}
	}
	return all
}

// verbsEnum matches a type whose comment says that its values are those of an enumeration of the verbs.
var verbsEnum = regexp.MustCompile(`(?s)// (\w+) [^\n]*(?:\n// [^\n]*)*enum\s+(?://\s+)?ibv?_[^\n]*\n(?:// [^\n]*\n)*type (\w+) `)

// noWord lists constants that need no name in the root package, because a program has no
// use for them. Their types have a name there.
var noWord = map[string]bool{"bth.QPNGSI": true, "bth.QKeyGSI": true, "qp.DCT": true}

// A program that uses the verbs needs to import the root package only: it has every constant of an enumeration of the
// verbs that the packages below have, with the same type and value.
func TestVocabulary(t *testing.T) {
	below := []string{"qp", "cq", "mr", "bth"}
	paths := []string{module}
	for _, p := range below {
		paths = append(paths, module+"/"+p)
	}
	all := load(t, paths...)
	top := all[module]
	named := make(map[string]bool) // types below that have a name in the root package
	for _, n := range top.Scope().Names() {
		if o, ok := top.Scope().Lookup(n).(*types.TypeName); ok && o.Exported() {
			named[types.Unalias(o.Type()).String()] = true
		}
	}
	words := make(map[string]bool) // type and value
	key := func(typ string, v constant.Value) string { return typ + " " + v.ExactString() }
	for _, c := range constants(top) {
		words[key(types.Unalias(c.Type()).String(), c.Val())] = true
	}
	found := 0
	for _, p := range below {
		enums := make(map[string]bool)
		for _, s := range sources(t) {
			if s.dir != p || s.test {
				continue
			}
			for _, m := range verbsEnum.FindAllSubmatch(s.text, -1) {
				enums[string(m[2])] = true
			}
		}
		for name, c := range constants(all[module+"/"+p]) {
			typ, ok := types.Unalias(c.Type()).(*types.Named)
			if !ok || noWord[p+"."+name] {
				continue
			}
			full := typ.String()
			if full == module+"/qp.EventType" { // events of the device are of the same enumeration
				full = module + ".EventType"
			}
			if !named[full] {
				if enums[typ.Obj().Name()] {
					t.Errorf("%s.%s is of an enumeration of the verbs, and its type has no name in the root package", p, name)
				}
				continue
			}
			found++
			if !words[key(full, c.Val())] {
				t.Errorf("%s.%s has no name in the root package", p, name)
			}
		}
	}
	if found < 150 {
		t.Errorf("found %d constants only: looking in the wrong place?", found)
	}
}

// The signatures and fields of the root package name only types that have a name there, so that a
// program can write a function or a variable of each without another import. Counters are only read.
func TestVocabularyOfSignatures(t *testing.T) {
	top := load(t, module)[module]
	named := make(map[string]bool)
	for _, n := range top.Scope().Names() {
		if o, ok := top.Scope().Lookup(n).(*types.TypeName); ok && o.Exported() {
			named[types.Unalias(o.Type()).String()] = true
		}
	}
	var visit func(where string, typ types.Type)
	visit = func(where string, typ types.Type) {
		switch typ := types.Unalias(typ).(type) {
		case *types.Named:
			below, ok := strings.CutPrefix(typ.String(), module+"/")
			floor, _, _ := strings.Cut(below, ".")
			if ok && slices.Contains([]string{"bth", "bth/frame", "cm", "cq", "mr", "qp"}, floor) && !named[typ.String()] && typ.Obj().Name() != "Counters" {
				t.Errorf("%s: %s has no name in the root package", where, below)
			}
		case *types.Signature:
			for _, tuple := range []*types.Tuple{typ.Params(), typ.Results()} {
				for v := range tuple.Variables() {
					visit(where, v.Type())
				}
			}
		case *types.Map:
			visit(where, typ.Key())
			visit(where, typ.Elem())
		case interface{ Elem() types.Type }: // pointer, slice, array, channel
			visit(where, typ.Elem())
		}
	}
	for _, n := range top.Scope().Names() {
		o := top.Scope().Lookup(n)
		if !o.Exported() {
			continue
		}
		typ, ok := o.Type().(*types.Named)
		if !ok || o.Pkg() != typ.Obj().Pkg() {
			visit(n, o.Type())
			continue
		}
		for m := range typ.Methods() {
			if m.Exported() {
				visit(n+"."+m.Name(), m.Type())
			}
		}
		switch under := typ.Underlying().(type) {
		case *types.Struct:
			for f := range under.Fields() {
				if f.Exported() {
					visit(n+"."+f.Name(), f.Type())
				}
			}
		case *types.Interface:
			for m := range under.Methods() {
				visit(n+"."+m.Name(), m.Type())
			}
		default:
			visit(n, under)
		}
	}
}
