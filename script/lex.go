package script

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Pos is a place in a script.
type Pos struct {
	File      string
	Line, Col int // from 1; the column counts bytes
}

// String prints "file:line:column".
func (p Pos) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Col) }

// Error is a mistake in a script, or a step of a script that failed.
type Error struct {
	Pos Pos
	Err error
}

func (e *Error) Error() string { return fmt.Sprintf("%v: %v", e.Pos, e.Err) }

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// errAt makes an Error.
func errAt(p Pos, format string, args ...any) error {
	return &Error{Pos: p, Err: fmt.Errorf(format, args...)}
}

// token is a word of a line: WORD, KEY=VALUE, "text", { or }.
type token struct {
	pos    Pos
	key    string // of KEY=VALUE
	text   string // the word, or the value
	at     Pos    // of the value
	assign bool   // it is KEY=VALUE
	quoted bool   // the value, or the whole word, was in quotation marks
}

// String prints the token for an error.
func (t *token) String() string {
	if t.assign {
		return t.key + "=" + t.text
	}
	return t.text
}

// maxLine and maxLines bound what a script may have.
const (
	maxLine  = 4096
	maxLines = 10000
)

// line is a line of a script that is not empty.
type line struct {
	pos     Pos
	text    string // without the comment, and without blanks at both ends
	tokens  []token
	comment string // the text after #
}

// lexLine splits a line into words.
func lexLine(file string, number int, text string) (l line, err error) {
	l.pos = Pos{file, number, 1}
	if len(text) > maxLine {
		return l, errAt(l.pos, "the line has %d bytes, at most %d", len(text), maxLine)
	}
	for i, c := range text {
		switch {
		case c == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			return l, errAt(Pos{file, number, i + 1}, "byte %#02x is no text: a script is UTF-8", text[i])
		case c == '\r' && i < len(text)-1:
			return l, errAt(Pos{file, number, i + 1}, "a carriage return within a line: lines end with a newline")
		case c != '\t' && c != '\r' && unicode.IsControl(c):
			return l, errAt(Pos{file, number, i + 1}, "the control character %U is no text", c)
		}
	}
	end := len(text)
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case c == '#':
			l.comment, end = strings.TrimSpace(text[i+1:]), i
			i = len(text)
		default:
			t, n, err := lexToken(file, number, text, i)
			if err != nil {
				return l, err
			}
			l.tokens = append(l.tokens, t)
			i = n
		}
	}
	if len(l.tokens) > 0 {
		l.pos = l.tokens[0].pos
	}
	l.text = strings.TrimSpace(text[:end])
	return l, nil
}

// lexToken reads the word at byte i, and returns where it ends.
func lexToken(file string, number int, text string, i int) (t token, end int, err error) {
	t.pos = Pos{file, number, i + 1}
	t.at = t.pos
	var b strings.Builder
	for i < len(text) {
		c := text[i]
		switch {
		case c == '"':
			n := strings.IndexByte(text[i+1:], '"')
			if n < 0 {
				return t, i, errAt(Pos{file, number, i + 1}, "the quotation mark is not closed")
			}
			b.WriteString(text[i+1 : i+1+n])
			t.quoted = true
			i += n + 2
			continue
		case c == ' ' || c == '\t' || c == '\r' || c == '#':
			t.text = b.String()
			return t, i, nil
		case (c == '{' || c == '}') && b.Len() == 0 && !t.assign && !t.quoted:
			t.text = string(c)
			return t, i + 1, nil
		case c == '{' || c == '}':
			t.text = b.String()
			return t, i, nil
		case c == '=' && !t.assign && !t.quoted && b.Len() > 0:
			t.key, t.assign = b.String(), true
			b.Reset()
			t.at = Pos{file, number, i + 2}
		default:
			b.WriteByte(c)
		}
		i++
	}
	t.text = b.String()
	return t, i, nil
}

// lex splits a script into lines. It leaves empty lines out.
func lex(file, text string) (lines []line, err error) {
	text = strings.TrimPrefix(text, "\uFEFF") // some editors write this byte order mark
	number := 0
	for s := range strings.Lines(text) {
		number++
		if number > maxLines {
			return nil, errAt(Pos{file, number, 1}, "the script has more than %d lines", maxLines)
		}
		l, err := lexLine(file, number, strings.TrimRight(s, "\n"))
		if err != nil {
			return nil, err
		}
		if len(l.tokens) > 0 || l.comment != "" {
			lines = append(lines, l)
		}
	}
	return lines, nil
}
