package main

import (
	"debug/elf"
	"fmt"
	"os"
	"slices"
	"strings"
)

// symbol is one name in one version node.
type symbol struct {
	Name    string
	Node    string
	Default bool // @@: new programs are linked to this version
	Data    bool
}

func (s symbol) String() string {
	at, data := "@", ""
	if s.Default {
		at = "@@"
	}
	if s.Data {
		data = " data"
	}
	return s.Name + at + s.Node + data
}

// list is sorted by name, then node.
type list []symbol

func (l list) String() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}

func (l list) sort() {
	slices.SortFunc(l, func(a, b symbol) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(a.Node, b.Node)
	})
}

// readLibrary returns the versioned symbols of a shared library.
func readLibrary(path string) (list, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	syms, err := f.DynamicSymbols()
	if err != nil {
		return nil, err
	}
	var l list
	for _, s := range syms {
		if s.Section == elf.SHN_UNDEF || s.Section == elf.SHN_ABS || s.Version == "" {
			continue
		}
		l = append(l, symbol{
			Name:    s.Name,
			Node:    s.Version,
			Default: !s.VersionIndex.IsHidden(),
			Data:    elf.ST_TYPE(s.Info) == elf.STT_OBJECT,
		})
	}
	l.sort()
	return l, nil
}

// readList reads a committed list.
func readList(path string) (list, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var l list
	for line := range strings.Lines(string(text)) {
		line, data := strings.CutSuffix(strings.TrimSpace(line), " data")
		name, node, ok := strings.Cut(line, "@")
		if !ok {
			return nil, fmt.Errorf("%s: %q has no version", path, line)
		}
		node, def := strings.CutPrefix(node, "@")
		l = append(l, symbol{Name: name, Node: node, Default: def, Data: data})
	}
	return l, nil
}
