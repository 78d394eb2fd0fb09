package script

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/bth"
)

// Parse reads a script. name is that of the file, for errors.
func Parse(name, text string) (*Script, error) {
	lines, err := lex(name, text)
	if err != nil {
		return nil, err
	}
	p := &parser{lines: lines, s: &Script{Name: strings.TrimSuffix(name, Extension)}, vars: newVars(), tr: bth.RC}
	for p.at < len(lines) && len(lines[p.at].tokens) == 0 {
		p.s.About = strings.TrimSpace(p.s.About + " " + lines[p.at].comment)
		p.at++
	}
	if p.s.Steps, err = p.block(nil); err != nil {
		return nil, err
	}
	if len(p.s.Steps) == 0 {
		return nil, errAt(Pos{name, 1, 1}, "the script has no steps")
	}
	if !p.connected {
		return nil, errAt(p.s.Steps[0].Pos, "the script has no connect or accept")
	}
	return p.s, nil
}

// Extension is the extension of files with scripts.
const Extension = ".script"

// parser reads statements from lines.
type parser struct {
	lines     []line
	at        int
	s         *Script
	vars      vars
	tr        bth.Transport
	connected bool
	depth     int
}

// maxDepth is how deep blocks can be nested.
const maxDepth = 8

// block reads the statements of a block, whose first line is open, up to "}". If open is nil, it reads to the end of the script.
func (p *parser) block(open *line) (steps []Step, err error) {
	if p.depth++; p.depth > maxDepth {
		return nil, errAt(open.pos, "blocks are nested deeper than %d", maxDepth)
	}
	defer func() { p.depth-- }()
	for ; p.at < len(p.lines); p.at++ {
		l := &p.lines[p.at]
		if len(l.tokens) == 0 {
			continue
		}
		first := &l.tokens[0]
		switch {
		case first.text == "}" && !first.quoted:
			if open == nil {
				return nil, errAt(first.pos, "there is no block to close")
			}
			if len(l.tokens) > 1 {
				return nil, errAt(l.tokens[1].pos, "nothing may follow }")
			}
			return steps, nil
		case first.text == "on" && !first.assign:
			if len(steps) == 0 {
				return nil, errAt(first.pos, "a variant needs a statement before it")
			}
			v, err := p.variant(l)
			if err != nil {
				return nil, err
			}
			last := &steps[len(steps)-1]
			last.on = append(last.on, v)
			continue
		}
		do, err := p.statement(l, l.tokens)
		if err != nil {
			return nil, err
		}
		if do != nil {
			steps = append(steps, Step{Pos: l.pos, Text: l.text, do: do})
		}
	}
	if open != nil {
		return nil, errAt(open.pos, "the block is not closed")
	}
	return steps, nil
}

// variant reads "on PEER [SERIES...]: STATEMENT".
func (p *parser) variant(l *line) (v Variant, err error) {
	for i := 1; i < len(l.tokens); i++ {
		t := &l.tokens[i]
		word, last := strings.CutSuffix(t.text, ":")
		if t.assign || t.quoted || word == "" {
			return v, errAt(t.pos, "want on PEER: STATEMENT, like on rxe 6.1: pass")
		}
		if i == 1 {
			if !validName(word) {
				return v, errAt(t.pos, "%q is no kind of peer", word)
			}
			v.For.Kind = word
		} else {
			v.For.Series = append(v.For.Series, word)
		}
		if !last {
			continue
		}
		if i+1 == len(l.tokens) {
			return v, errAt(t.pos, "a statement is missing behind the colon; pass does nothing")
		}
		rest := l.tokens[i+1:]
		if rest[0].text == "on" {
			return v, errAt(rest[0].pos, "a variant cannot have variants")
		}
		v.Why = l.comment
		v.Step = Step{Pos: rest[0].pos, Text: strings.TrimSpace(l.text[rest[0].pos.Col-l.pos.Col:])}
		v.Step.do, err = p.statement(l, rest)
		if err == nil && v.Step.do == nil {
			err = errAt(rest[0].pos, "%s cannot differ by peer", rest[0].text)
		}
		return v, err
	}
	return v, errAt(l.pos, "want on PEER: STATEMENT: the colon is missing")
}

// reader parses the words t of a statement, which is in line l.
type reader func(p *parser, l *line, t []token) (action, error)

// verbs maps the first word of each statement to the function that parses the statement.
var verbs map[string]reader

func init() {
	verbs = map[string]reader{
		"rule": header(func(s *Script) *string { return &s.Rule }), "title": header(func(s *Script) *string { return &s.Title }),
		"peer":    header(func(s *Script) *string { return &s.Peer }),
		"connect": (*parser).connect, "accept": (*parser).connect,
		"send": connected((*parser).send), "raw": connected((*parser).raw), "expect": connected((*parser).expect),
		"wait": (*parser).wait, "set": (*parser).set, "loop": (*parser).loop,
		"recv": connected((*parser).recv), "post": connected((*parser).post), "outcome": connected((*parser).outcome),
		"dies":       simple(&diesStep{}),
		"disconnect": simple(&disconnectStep{}),
		"settle":     simple(&settleStep{}),
		"pass":       simple(&passStep{}),
		"forget":     simple(&forgetStep{}),
	}
}

// Verbs lists the statements.
func Verbs() []string { return append(slices.Sorted(maps.Keys(verbs)), "on") }

// statement reads one statement. It returns no action for a line of the header.
func (p *parser) statement(l *line, t []token) (action, error) {
	read, ok := verbs[t[0].text]
	if !ok || t[0].assign || t[0].quoted {
		return nil, errAt(t[0].pos, "unknown statement %q: want one of %s", t[0].String(), strings.Join(Verbs(), ", "))
	}
	return read(p, l, t)
}

// header returns the parser of a statement that sets a field of the script to one text.
func header(field func(*Script) *string) reader {
	return func(p *parser, l *line, t []token) (action, error) {
		if len(t) != 2 || !t[1].quoted || t[1].assign {
			return nil, errAt(t[0].pos, "want %s \"text\"", t[0].text)
		}
		at := field(p.s)
		if *at != "" {
			return nil, errAt(t[0].pos, "%s is there twice", t[0].text)
		}
		*at = t[1].text
		return nil, nil
	}
}

// simple returns the parser of a statement without arguments.
func simple(do action) reader {
	return connected(func(_ *parser, _ *line, t []token) (action, error) {
		if len(t) > 1 {
			return nil, errAt(t[1].pos, "%s takes no arguments", t[0].text)
		}
		return do, nil
	})
}

// connected returns the parser of a statement that must follow connect or accept. read parses the statement.
func connected(read reader) reader {
	return func(p *parser, l *line, t []token) (action, error) {
		if !p.connected {
			return nil, errAt(t[0].pos, "%s comes before connect or accept", t[0].text)
		}
		return read(p, l, t)
	}
}

// number reads an expression and checks its variables.
func (p *parser) number(text string, at Pos) (expr, error) {
	e, err := parseExpr(text, at)
	if err != nil {
		return e, err
	}
	return e, p.known(&e)
}

// definable checks that a script may define a variable with this name.
func definable(name string, at Pos) error {
	if !validName(name) || strings.ContainsAny(name, ".@") {
		return errAt(at, "%q is no name of a variable: want letters, digits and _", name)
	}
	if predefined[name] != nil {
		return errAt(at, "$%s belongs to the connection", name)
	}
	return nil
}

// maxWait bounds waits, so that a script ends.
const maxWait = 5 * time.Minute

// duration parses a time like "50ms".
func duration(t *token) (time.Duration, error) {
	d, err := time.ParseDuration(t.text)
	if err != nil || t.assign || t.quoted {
		return 0, errAt(t.pos, "%q is no time like 50ms", t.String())
	}
	if d <= 0 || d > maxWait {
		return 0, errAt(t.pos, "%v: want more than 0 and at most %v", d, maxWait)
	}
	return d, nil
}

// count parses a number from 1 to limit.
func count(t *token, limit int) (int, error) {
	n, err := strconv.Atoi(t.text)
	if err != nil || t.assign || n < 1 || n > limit {
		return 0, errAt(t.pos, "%q: want a number from 1 to %d", t.String(), limit)
	}
	return n, nil
}

// maxLoop bounds repetitions.
const maxLoop = 100_000
