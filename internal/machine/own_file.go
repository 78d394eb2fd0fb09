package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// createOwn creates a file that no other program writes. The name may have %p for the process ID. If the file exists,
// createOwn adds the process ID, and then a count, before the extension.
func createOwn(name string, pid int) (*os.File, error) {
	name = expandPID(name, pid)
	ext := filepath.Ext(name)
	stem := strings.TrimSuffix(name, ext)
	for try := range 1000 {
		at := name
		switch try {
		case 0:
		case 1:
			at = fmt.Sprintf("%s-%d%s", stem, pid, ext)
		default:
			at = fmt.Sprintf("%s-%d-%d%s", stem, pid, try, ext)
		}
		f, err := os.OpenFile(at, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
		// Use a special file, like /dev/null or a named pipe, under its name.
		if info, err := os.Stat(at); err == nil && !info.Mode().IsRegular() {
			return os.OpenFile(at, os.O_WRONLY, 0)
		}
	}
	return nil, fmt.Errorf("%s: %w, and so do 999 files with the number of this process", name, fs.ErrExist)
}

// expandPID replaces %p by the process ID.
func expandPID(name string, pid int) string {
	return strings.ReplaceAll(name, "%p", strconv.Itoa(pid))
}
