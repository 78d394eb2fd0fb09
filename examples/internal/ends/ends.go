// Package ends runs the two ends of an example program in a test.
package ends

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// End runs one end of a program, which prints to out.
type End func(out io.Writer) error

// Run starts the server, waits until it has printed a line that contains ready, and runs the client. It returns
// the output of both, and fails the test if either has failed.
func Run(t *testing.T, ready string, server, client End) (served, called string) {
	t.Helper()
	s := &output{awaited: ready, seen: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- server(s) }()
	select {
	case <-s.seen:
	case err := <-done:
		t.Fatalf("the server ended before it was ready: %v\n%s", err, s)
	}
	var c output
	if err := client(&c); err != nil {
		t.Errorf("client: %v\n%s", err, &c)
	}
	if err := <-done; err != nil {
		t.Errorf("server: %v\n%s", err, s)
	}
	return s.String(), c.String()
}

// WantLines checks that an end has printed lines, each of them a pattern, in this order.
func WantLines(t *testing.T, end, printed, lines string) {
	t.Helper()
	rest := printed
	for line := range strings.Lines(lines) {
		line = strings.TrimSuffix(line, "\n")
		at := regexp.MustCompile(`(?m)^` + line + `$`).FindStringIndex(rest)
		if at == nil {
			t.Fatalf("the %s has not printed %q, or not in its place:\n%s", end, line, printed)
		}
		rest = rest[at[1]:]
	}
}

// output keeps the output of an end, and signals when it contains a text.
type output struct {
	awaited string
	seen    chan struct{}

	mu   sync.Mutex // guards the fields below
	text bytes.Buffer
	told bool
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if o.seen != nil && !o.told && bytes.Contains(o.text.Bytes(), []byte(o.awaited)) {
		o.told = true
		close(o.seen)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
