package scenario

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Run runs the tests of a package and returns the exit code. It fails if they leave goroutines
// of this module behind.
func Run(m *testing.M) (code int) {
	code = m.Run()
	if code == 0 {
		if left := leaked(5 * time.Second); left != "" {
			fmt.Fprintf(os.Stderr, "goroutines are left:\n%s\n", left)
			code = 1
		}
	}
	return code
}

// leaked returns the stacks of goroutines that run code of this module, after
// giving them some time to end.
func leaked(patience time.Duration) string {
	for end := time.Now().Add(patience); ; runtime.Gosched() {
		buf := make([]byte, 1<<20)
		stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
		var left []string
		for _, s := range stacks[1:] { // the first is our own
			if strings.Contains(s, "goroce/roce") {
				left = append(left, s)
			}
		}
		if len(left) == 0 {
			return ""
		}
		if time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
	}
}
