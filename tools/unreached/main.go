// Command unreached lists the functions of this module that nothing calls. It starts at the
// programs, their initialisation, the examples, and the exported functions and methods of the
// packages whose API is public, and follows every call that may happen from there. A function
// that only tests reach must stand in the list that it is given, with a reason; a function that
// not even tests reach must go.
//
//	unreached tools/unreached/tests.txt
//
// It looks at the module as each of several systems builds it: what one of them reaches is
// reached.
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/callgraph/rta"
	"golang.org/x/tools/go/packages"
	"golang.org/x/tools/go/ssa"
	"golang.org/x/tools/go/ssa/ssautil"
)

const module = "github.com/goroce/roce"

// systems are those whose builds are looked at.
var systems = []string{"linux", "freebsd"}

// engine lists the packages that other modules could import but that are parts of the stack:
// their functions are for the stack, so one that only tests call is not needed.
var engine = []string{"mono", "bth", "bth/frame", "bth/ids", "mr", "qp", "cm"}

// function is one of the module, by the place of its name.
type function struct {
	at      token.Position
	name    string
	test    bool // it is part of a test
	reached bool // without tests
	tested  bool // or with them
}

func main() {
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: unreached LIST") }
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	listed, err := readList(flag.Arg(0))
	if err != nil {
		fatal(err)
	}
	all := map[string]*function{}
	for _, goos := range systems {
		if err := look(goos, all); err != nil {
			fatal(fmt.Errorf("%s: %w", goos, err))
		}
	}
	if complaints := judge(all, listed); len(complaints) > 0 {
		fmt.Println(strings.Join(complaints, "\n"))
		os.Exit(1)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "unreached:", err)
	os.Exit(2)
}

// readList reads lines of a function and the reason why it may stay. A function that ends in
// ".*" stands for a package or a type, with all that belongs to it.
func readList(name string) (map[string]bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	listed := map[string]bool{}
	s := bufio.NewScanner(f)
	for s.Scan() {
		line := strings.TrimSpace(s.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		what, why, _ := strings.Cut(line, " ")
		if strings.TrimSpace(why) == "" {
			return nil, fmt.Errorf("%s: %s has no reason", name, what)
		}
		listed[what] = true
	}
	return listed, s.Err()
}

// judge says what must change: functions to remove or to list, and entries of the list that
// nothing needs.
func judge(all map[string]*function, listed map[string]bool) (complaints []string) {
	needed := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		f := all[key]
		switch {
		case f.reached || f.test && f.tested:
		case !f.tested:
			complaints = append(complaints, fmt.Sprintf("%s:%d: nothing calls %s", f.at.Filename, f.at.Line, f.name))
		default:
			entry := f.name
			for !listed[entry] && entry != ".*" {
				entry = strings.TrimSuffix(entry, ".*")
				entry = entry[:max(0, strings.LastIndexByte(entry, '.'))] + ".*"
			}
			if needed[entry] = true; entry == ".*" {
				complaints = append(complaints, fmt.Sprintf("%s:%d: only tests call %s: remove it or list it", f.at.Filename, f.at.Line, f.name))
			}
		}
	}
	for _, entry := range slices.Sorted(maps.Keys(listed)) {
		if !needed[entry] {
			complaints = append(complaints, fmt.Sprintf("%s is listed, but there is no such function, or more than tests call it", entry))
		}
	}
	return complaints
}

// look adds the functions that the module has when it is built for goos, and what reaches them.
func look(goos string, all map[string]*function) error {
	initial, err := packages.Load(&packages.Config{
		Mode:  packages.LoadAllSyntax | packages.NeedModule,
		Tests: true,
		Env:   append(os.Environ(), "GOOS="+goos, "GOARCH=amd64", "CGO_ENABLED=0"),
	}, "./...")
	if err != nil {
		return err
	}
	if packages.PrintErrors(initial) > 0 {
		return fmt.Errorf("the module does not compile")
	}
	prog, built := ssautil.AllPackages(initial, ssa.InstantiateGenerics)
	prog.Build()

	here := map[string]*function{}
	packages.Visit(initial, nil, func(p *packages.Package) {
		if p.Module == nil || p.Module.Path != module {
			return
		}
		for _, file := range p.Syntax {
			if !ast.IsGenerated(file) {
				collect(prog, p, file, here)
			}
		}
	})
	var roots, tests []*ssa.Function
	for i, p := range initial {
		if built[i] == nil || p.Module == nil {
			continue
		}
		r := entries(prog, built[i])
		tests = append(tests, r...)
		if p.ForTest == "" && !strings.HasSuffix(p.PkgPath, ".test") {
			roots = append(roots, r...)
		}
	}
	roots = append(roots, methods(prog, initial)...)
	tests = append(tests, roots...)
	mark(prog, roots, func(key string) {
		if f := here[key]; f != nil {
			f.reached = true
		}
	})
	mark(prog, tests, func(key string) {
		if f := here[key]; f != nil {
			f.tested = true
		}
	})
	for key, f := range here {
		if old := all[key]; old != nil {
			f.reached, f.tested = f.reached || old.reached, f.tested || old.tested
		}
		all[key] = f
	}
	return nil
}

// collect notes the functions that a file declares, other than init, and those without a name
// or a body.
func collect(prog *ssa.Program, p *packages.Package, file *ast.File, here map[string]*function) {
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || fn.Name.Name == "_" || fn.Recv == nil && fn.Name.Name == "init" {
			continue
		}
		at := prog.Fset.Position(fn.Name.Pos())
		name := cmp.Or(folder(strings.TrimSuffix(p.PkgPath, "_test")), p.Name) + "."
		if fn.Recv != nil {
			name += receiver(fn.Recv.List[0].Type) + "."
		}
		here[at.String()] = &function{at: relative(at), name: name + fn.Name.Name, test: strings.HasSuffix(at.Filename, "_test.go")}
	}
}

// receiver is the name of the type of a receiver.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// folder is where the package with an import path lies, without "." for the root.
func folder(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

// relative shortens a file's name, for people.
func relative(at token.Position) token.Position {
	if wd, err := os.Getwd(); err == nil {
		if r, err := filepath.Rel(wd, at.Filename); err == nil {
			at.Filename = r
		}
	}
	return at
}

// entries returns where a package begins to run: its initialisation, main, and its examples.
func entries(prog *ssa.Program, p *ssa.Package) (roots []*ssa.Function) {
	for name, m := range p.Members {
		f, ok := m.(*ssa.Function)
		if !ok || f.Name() != name {
			continue
		}
		file := prog.Fset.Position(f.Pos()).Filename
		if name == "init" || p.Pkg.Name() == "main" && name == "main" ||
			strings.HasPrefix(name, "Example") && strings.HasSuffix(file, "_test.go") {
			roots = append(roots, f)
		}
	}
	return roots
}

// public reports whether the API of a package is for users of the module.
func public(p *packages.Package) bool {
	if p.ForTest != "" || p.Name == "main" || p.Module == nil || p.Module.Path != module {
		return false
	}
	dir := folder(p.PkgPath)
	return !slices.Contains(engine, dir) && !slices.Contains(strings.Split(dir, "/"), "internal")
}

// methods returns the functions and methods that users can call. A generic one is called with
// type arguments that are not known, so it counts as called by those inside that call it.
func methods(prog *ssa.Program, initial []*packages.Package) (roots []*ssa.Function) {
	add := func(o types.Object) {
		f, ok := o.(*types.Func)
		if !ok || !f.Exported() {
			return
		}
		if s := prog.FuncValue(f); s != nil && s.TypeParams().Len() == 0 {
			roots = append(roots, s)
		}
	}
	for _, p := range initial {
		if !public(p) {
			continue
		}
		scope := p.Types.Scope()
		for _, name := range scope.Names() {
			o := scope.Lookup(name)
			add(o)
			if t, ok := o.(*types.TypeName); ok && t.Exported() {
				set := types.NewMethodSet(types.NewPointer(t.Type()))
				for i := range set.Len() {
					add(set.At(i).Obj())
				}
			}
		}
	}
	return roots
}

// mark calls f for the place of each function that the roots reach.
func mark(prog *ssa.Program, roots []*ssa.Function, f func(at string)) {
	for fn := range rta.Analyze(roots, false).Reachable {
		if o := fn.Origin(); o != nil {
			fn = o
		}
		if fn.Pos().IsValid() {
			f(prog.Fset.Position(fn.Pos()).String())
		}
	}
}
