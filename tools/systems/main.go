// Command systems vets the module of the working folder, with its tests, as other systems build it. It compiles
// nothing: go vet would compile the module, what it needs and the standard library once more for each system.
//
//	systems linux/386 freebsd/amd64
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/analysis/suite/vet"
	"golang.org/x/tools/go/packages"
)

func main() {
	flag.Usage = func() { fmt.Fprintln(os.Stderr, "usage: systems GOOS/GOARCH...") }
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	wd, err := os.Getwd()
	if err != nil {
		fatal(err)
	}
	code := 0
	for _, system := range flag.Args() {
		sound, err := check(wd, system)
		if err != nil {
			fatal(fmt.Errorf("%s: %w", system, err))
		}
		if !sound {
			fmt.Println("for", system)
			code = 1
		}
	}
	os.Exit(code)
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "systems:", err)
	os.Exit(2)
}

// check prints what the compiler or go vet would complain about in the build of a system.
func check(dir, system string) (sound bool, err error) {
	goos, goarch, ok := strings.Cut(system, "/")
	if !ok {
		return false, fmt.Errorf("want GOOS/GOARCH")
	}
	all, err := packages.Load(&packages.Config{
		Mode:  packages.LoadAllSyntax | packages.NeedModule,
		Tests: true,
		Dir:   dir,
		Env:   append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
	}, "./...")
	if err != nil {
		return false, err
	}
	if packages.PrintErrors(all) > 0 {
		return false, nil
	}
	// The program of the tests of a package is generated.
	all = slices.DeleteFunc(all, func(p *packages.Package) bool { return strings.HasSuffix(p.PkgPath, ".test") })
	graph, err := checker.Analyze(vet.Suite, all, nil)
	if err != nil {
		return false, err
	}
	found := false
	for _, a := range graph.Roots {
		found = found || a.Err != nil || len(a.Diagnostics) > 0
	}
	if found {
		err = graph.PrintText(os.Stdout, -1)
	}
	return !found, err
}
