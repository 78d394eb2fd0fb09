package main

import (
	"strings"
	"testing"
)

func TestDemo(t *testing.T) {
	var out strings.Builder
	if err := demo(&out); err != nil {
		t.Fatal(err)
	}
	const want = "200 OK: HTTP/1.1 /upload 1048576 bytes\n200 OK: HTTP/2.0 /upload 1048576 bytes\n"
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}
