package impair

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/goroce/roce/link/fault"
)

// File is a rule file.
type File struct {
	Name  string
	Seed  uint64
	Hold  int
	Rules []Rule
}

// Rule is a rule of a file.
type Rule struct {
	fault.Rule
	Name string // from the file, or "rule N"
	Line int    // where it begins
}

// FileError is a mistake at one place of a rule file.
type FileError struct {
	File         string
	Line, Column int // Column 0: not known
	Text         string
}

func (e *FileError) Error() string {
	if e.Column == 0 {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Text)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Text)
}

// maxFile bounds the size of a rule file in bytes. maxErrors bounds the number of mistakes that are reported.
const (
	maxFile   = 1 << 20
	maxErrors = 10
)

// Load reads a rule file. If the file is not valid the error is several *FileError joined, in their
// order in the file.
func Load(name string) (*File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, &FileError{File: name, Line: 1, Text: fmt.Sprintf("the file is larger than %d bytes", maxFile)}
	}
	return Parse(name, text)
}

// Parse is like Load, for a text in memory.
func Parse(name string, text []byte) (*File, error) {
	if err := checkLines(name, text); err != nil {
		return nil, err
	}
	r := reader{file: &File{Name: name}}
	var doc, second yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	switch err := d.Decode(&doc); {
	case err == io.EOF:
		return nil, &FileError{File: name, Line: 1, Text: "the file is empty"}
	case err != nil:
		return nil, syntax(name, text, err)
	}
	if err := d.Decode(&second); err == nil {
		return nil, &FileError{File: name, Line: second.Line, Column: second.Column, Text: "a second document; rules are in one"}
	} else if err != io.EOF {
		return nil, syntax(name, text, err)
	}
	r.top(&doc)
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	return r.file, nil
}

// maxLine bounds a line of a rule file, in bytes.
const maxLine = 4096

// checkLines returns an error if a line is too long.
func checkLines(name string, text []byte) error {
	line := 0
	for b := range bytes.Lines(text) {
		if line++; len(b) > maxLine {
			return &FileError{name, line, 1, fmt.Sprintf("the line has %d bytes, at most %d", len(b), maxLine)}
		}
	}
	return nil
}

// These match errors of the YAML parser: any error, with the number of the line unless that is the first, and the error for an alias.
var (
	yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)
	noAnchor  = regexp.MustCompile(`^unknown anchor '(.*)' referenced$`)
)

// syntax converts an error of the YAML parser to a FileError. The parser does not tell the place of a forbidden byte or of an unknown
// alias, and counts lines from 0 in errors of block structure: syntax adds the place or corrects the line.
func syntax(name string, text []byte, err error) error {
	m := yamlError.FindStringSubmatch(err.Error())
	if m == nil {
		return &FileError{File: name, Line: 1, Text: "not YAML: " + err.Error()}
	}
	e := &FileError{File: name, Line: 1, Text: "not YAML: " + m[2]}
	if line, err := strconv.Atoi(m[1]); err == nil {
		e.Line = line
	}
	if alias := noAnchor.FindStringSubmatch(m[2]); alias != nil {
		e.at(text, bytes.Index(text, []byte("*"+alias[1])))
	} else if strings.HasPrefix(m[2], "did not find expected") && m[1] != "" {
		e.Line++
	} else if i := bytes.IndexFunc(text, notText); m[1] == "" && i >= 0 {
		e.at(text, i)
	}
	return e
}

// notText reports whether a character may not be in YAML.
func notText(r rune) bool {
	return r == utf8.RuneError || unicode.IsControl(r) && !strings.ContainsRune("\t\n\r\u0085", r)
}

// at sets the line and the column to those of byte i of the text. It does nothing if i is -1.
func (e *FileError) at(text []byte, i int) {
	if i >= 0 {
		e.Line, e.Column = 1+bytes.Count(text[:i], []byte("\n")), i-bytes.LastIndexByte(text[:i], '\n')
	}
}

// reader converts a tree of nodes to a File, and collects the mistakes in it.
type reader struct {
	file *File
	errs []error
}

func (r *reader) fail(n *yaml.Node, format string, a ...any) {
	if len(r.errs) < maxErrors {
		r.errs = append(r.errs, &FileError{r.file.Name, n.Line, n.Column, fmt.Sprintf(format, a...)})
	}
}

// pair is a key of a mapping with its value.
type pair struct{ key, value *yaml.Node }

// resolved follows an alias.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// pairs returns the keys of a mapping, each once.
func (r *reader) pairs(n *yaml.Node, what string) (list []pair) {
	if n = resolved(n); n.Kind != yaml.MappingNode {
		r.fail(n, "%s is %s; want keys with values", what, kind(n))
		return nil
	}
	seen := make(map[string]int)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if line, again := seen[key.Value]; again {
			r.fail(key, "%.60q is there already, in line %d", key.Value, line)
			continue
		}
		seen[key.Value] = key.Line
		list = append(list, pair{key, resolved(n.Content[i+1])})
	}
	return list
}

// scalar returns the text of a value.
func (r *reader) scalar(p pair) (string, bool) {
	if p.value.Kind != yaml.ScalarNode || p.value.Tag == "!!null" {
		r.fail(p.value, "%s is %s; want one value", p.key.Value, kind(p.value))
		return "", false
	}
	if strings.ContainsFunc(p.value.Value, unicode.IsControl) { // written as an escape, or over several lines
		r.fail(p.value, "%s is %.60q; want one line without control characters", p.key.Value, p.value.Value)
		return "", false
	}
	return p.value.Value, true
}

// kind names the kind of a node.
func kind(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "empty"
	}
	return fmt.Sprintf("%.60q", n.Value)
}

// unknown reports a key that is not one of the possible ones.
func (r *reader) unknown(key *yaml.Node, possible []string) {
	slices.Sort(possible)
	r.fail(key, "unknown key %.60q; the keys here are %s", key.Value, strings.Join(possible, ", "))
}

// top reads the file.
func (r *reader) top(doc *yaml.Node) {
	var rules *yaml.Node
	for _, p := range r.pairs(doc.Content[0], "the file") {
		switch p.key.Value {
		case "seed":
			if s, ok := r.scalar(p); ok {
				v, err := strconv.ParseUint(s, 0, 64)
				if err != nil {
					r.fail(p.value, "seed: %q is not a number", s)
				}
				r.file.Seed = v
			}
		case "hold":
			if s, ok := r.scalar(p); ok {
				v, err := strconv.ParseUint(s, 0, 20)
				if err != nil || v == 0 {
					r.fail(p.value, "hold: %q is not a number of packets from 1 to %d", s, 1<<20-1)
				}
				r.file.Hold = int(v)
			}
		case "rules":
			rules = p.value
		default:
			r.unknown(p.key, []string{"seed", "hold", "rules"})
		}
	}
	switch {
	case rules == nil:
		if len(r.errs) == 0 {
			r.fail(doc.Content[0], "the file has no rules")
		}
	case rules.Kind != yaml.SequenceNode:
		r.fail(rules, "rules is %s; want a list", kind(rules))
	default:
		for i, n := range rules.Content {
			r.rule(i+1, resolved(n), n.Line)
		}
	}
}

// rule reads rule number i.
func (r *reader) rule(i int, n *yaml.Node, line int) {
	rule := Rule{Name: fmt.Sprintf("rule %d", i), Line: line}
	before := len(r.errs)
	var action *yaml.Node
	for _, p := range r.pairs(n, rule.Name) {
		switch key := p.key.Value; {
		case key == "name":
			rule.Name, _ = r.scalar(p)
		case key == "action":
			if s, ok := r.scalar(p); ok {
				if rule.Action, ok = fault.ParseAction(s); !ok {
					r.fail(p.value, "unknown action %q; the actions are %s", s, strings.Join(fault.ActionNames(), ", "))
				}
				action = p.value
			}
		case key == "match":
			r.match(&rule, p)
		case key == "set":
			for _, e := range r.pairs(p.value, "set") {
				r.set(&rule, e, "set."+e.key.Value)
			}
		case parameterKeys[key] != nil:
			r.set(&rule, p, parameterKeys[key].flag)
		default:
			r.unknown(p.key, keyNames(parameterKeys, "name", "action", "match", "set"))
		}
	}
	switch {
	case len(r.errs) > before:
	case action == nil:
		r.fail(n, "%s has no action", rule.Name)
	default:
		if err := rule.Check(); err != nil {
			r.fail(action, "%v", err)
		}
	}
	r.file.Rules = append(r.file.Rules, rule)
}

// match reads the conditions that select the packets of a rule.
func (r *reader) match(rule *Rule, p pair) {
	for _, m := range r.pairs(p.value, "match") {
		switch key := m.key.Value; {
		case key == "direction":
			if s, ok := r.scalar(m); ok {
				dir, known := directions[s]
				if !known {
					r.fail(m.value, "direction: %q is not a-to-b, b-to-a or both", s)
				}
				rule.Dir = dir
			}
		case key == "opcode" && m.value.Kind == yaml.SequenceNode:
			var names []string
			for _, n := range m.value.Content {
				if s, ok := r.scalar(pair{m.key, resolved(n)}); ok {
					names = append(names, s)
				}
			}
			if err := rule.Set("op", strings.Join(names, "|")); err != nil {
				r.fail(m.value, "opcode: %v", cause(err, "op"))
			}
		case matchKeys[key] != nil:
			r.set(rule, m, matchKeys[key].flag)
		default:
			r.unknown(m.key, keyNames(matchKeys, "direction"))
		}
	}
}

// set sets a property from a value.
func (r *reader) set(rule *Rule, p pair, flag string) {
	s, ok := r.scalar(p)
	if !ok {
		return
	}
	if err := rule.Set(flag, s); err != nil {
		r.fail(p.value, "%s: %v", p.key.Value, cause(err, flag))
	}
}

// cause removes the name of the flag from an error, because the key in the file may have another name.
func cause(err error, flag string) string { return strings.TrimPrefix(err.Error(), flag+": ") }

// FaultRules returns the rules for a fault.Config.
func (f *File) FaultRules() []fault.Rule {
	rules := make([]fault.Rule, len(f.Rules))
	for i := range rules {
		rules[i] = f.Rules[i].Rule
	}
	return rules
}
