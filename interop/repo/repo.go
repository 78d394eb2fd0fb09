// Package repo finds the repository.
package repo

import (
	"fmt"
	"os"
	"path/filepath"
)

// Root returns the folder with go.mod: the working folder or one above it.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s is not in the repository", dir)
		}
	}
}
