// Package library has scripts of package script with expected results.
package library

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/goroce/roce/script"
)

//go:embed */*.script
var files embed.FS

// All returns the scripts, by name.
var All = sync.OnceValue(func() (all []*script.Script) {
	names, _ := fs.Glob(files, "*/*"+script.Extension) // the pattern is right
	slices.Sort(names)
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			panic(err) // cannot happen: the file is embedded
		}
		s, err := script.Parse(name, string(text))
		if err != nil {
			panic(fmt.Sprintf("the library has a broken script: %v", err)) // a test reads all
		}
		all = append(all, s)
	}
	return all
})

// Find returns the script with a name, nil if there is none.
func Find(name string) *script.Script {
	name = strings.TrimSuffix(name, script.Extension)
	for _, s := range All() {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// Text returns the text of a script.
func Text(name string) (string, error) {
	b, err := files.ReadFile(strings.TrimSuffix(name, script.Extension) + script.Extension)
	return string(b), err
}
