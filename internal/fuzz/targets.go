package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// pkg is a package with fuzz targets.
type pkg struct {
	ImportPath, Dir string
	Module          struct{ Path string }

	TestGoFiles, XTestGoFiles []string

	in      string // the directory of the module
	targets []string
}

// modules are the directories of the modules with fuzz targets.
var modules = []string{".", "cverbs"}

// short returns the package's path in the repository, or the name of the module for its root.
func (p *pkg) short() string {
	if p.ImportPath == p.Module.Path {
		return path.Base(p.Module.Path)
	}
	return path.Join(p.in, strings.TrimPrefix(p.ImportPath, p.Module.Path+"/"))
}

func (p *pkg) name(target string) string { return p.short() + "." + target }

// find lists the packages with targets whose names match.
func find(ctx context.Context, match *regexp.Regexp) (all []*pkg, err error) {
	for _, dir := range modules {
		some, err := findIn(ctx, dir, match)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// findIn lists those of a module. It reads the test files because go test -list would build all test programs.
func findIn(ctx context.Context, dir string, match *regexp.Regexp) (all []*pkg, err error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-e", "-json=ImportPath,Dir,Module,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for list := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &pkg{in: dir}
		if err := list.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for _, file := range append(p.TestGoFiles, p.XTestGoFiles...) {
			names, err := targets(filepath.Join(p.Dir, file))
			if err != nil {
				return nil, err
			}
			for _, n := range names {
				if match.MatchString(p.name(n)) {
					p.targets = append(p.targets, n)
				}
			}
		}
		if len(p.targets) > 0 {
			all = append(all, p)
		}
	}
}

// target is the type of a fuzz target.
var target = regexp.MustCompile(`^func\(\w+ \*testing\.F\)$`)

// targets lists the fuzz targets of a file.
func targets(file string) (names []string, err error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") && target.MatchString(types.ExprString(f.Type)) {
			names = append(names, f.Name.Name)
		}
	}
	return names, nil
}
