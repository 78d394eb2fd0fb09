// Command unreached lists the functions of this module that nothing calls. It starts at the programs,
// their initialisation, the examples, and the exported functions and methods of packages with a
// public API, and follows every call that may happen from there. A function that only tests reach
// must be in the list that is the argument, with a reason. A function that no test reaches must be
// removed.
//
//	unreached tools/unreached/tests.txt
//
// It analyses the builds of the module for several systems. A function is reached if one of the builds
// reaches it.
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

// systems lists the systems whose builds are analysed.
var systems = []string{"linux", "freebsd"}

// engine lists packages that other modules could import but that are parts of the stack. Their API is
// for the stack, so a function that only tests call is not needed.
var engine = []string{"mono", "bth", "bth/frame", "bth/ids", "mr", "qp", "cm"}

// function is a function of the module.
type function struct {
	at      token.Position
	name    string
	test    bool // it is in a test file
	reached bool // by programs, examples or users
	tested  bool // by these or by tests
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
		if err := analyse(goos, all); err != nil {
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

// readList reads lines with a function and the reason why it may stay. A name that ends in ".*" stands
// for all functions of a package or all methods of a type.
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

// judge returns complaints: functions to remove or to list, and entries of the list that are not
// needed.
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

// analyse adds the functions of the module's build for goos, and what reaches them.
func analyse(goos string, all map[string]*function) error {
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
	mark(prog, roots, here, func(f *function) { f.reached = true })
	mark(prog, tests, here, func(f *function) { f.tested = true })
	for key, f := range here {
		if old := all[key]; old != nil {
			f.reached, f.tested = f.reached || old.reached, f.tested || old.tested
		}
		all[key] = f
	}
	return nil
}

// collect adds the functions that a file declares, except for init and functions without a name or a
// body.
func collect(prog *ssa.Program, p *packages.Package, file *ast.File, here map[string]*function) {
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil || fn.Name.Name == "_" || fn.Recv == nil && fn.Name.Name == "init" {
			continue
		}
		at := prog.Fset.Position(fn.Name.Pos())
		here[at.String()] = &function{at: relative(at), name: fullName(p.TypesInfo.Defs[fn.Name].(*types.Func)), test: strings.HasSuffix(at.Filename, "_test.go")}
	}
}

// fullName returns the folder of a function's package, the type of its receiver and its name.
func fullName(f *types.Func) string {
	name := cmp.Or(folder(strings.TrimSuffix(f.Pkg().Path(), "_test")), f.Pkg().Name()) + "."
	if recv := f.Signature().Recv(); recv != nil {
		t := recv.Type()
		if p, ok := t.(*types.Pointer); ok {
			t = p.Elem()
		}
		name += t.(*types.Named).Obj().Name() + "."
	}
	return name + f.Name()
}

// folder returns the folder of a package; it is empty for the root package.
func folder(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

// relative makes the name of a file relative to the working folder, for people.
func relative(at token.Position) token.Position {
	if wd, err := os.Getwd(); err == nil {
		if r, err := filepath.Rel(wd, at.Filename); err == nil {
			at.Filename = r
		}
	}
	return at
}

// entries returns the functions at which a package begins to run: its initialisation, main, and its
// examples.
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

// public reports whether the API of a package is for users of the module. It is false for the engine,
// programs and internal packages.
func public(p *packages.Package) bool {
	if p.ForTest != "" || p.Name == "main" || p.Module == nil || p.Module.Path != module {
		return false
	}
	dir := folder(p.PkgPath)
	return !slices.Contains(engine, dir) && !slices.Contains(strings.Split(dir, "/"), "internal")
}

// methods returns the functions and methods that users can call, without generic ones: their type
// arguments are not known, so they need callers inside the module.
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

// mark calls set for each function of here that the roots reach.
func mark(prog *ssa.Program, roots []*ssa.Function, here map[string]*function, set func(*function)) {
	for fn := range rta.Analyze(roots, false).Reachable {
		if o := fn.Origin(); o != nil {
			fn = o
		}
		if f := here[prog.Fset.Position(fn.Pos()).String()]; f != nil {
			set(f)
		}
	}
}
