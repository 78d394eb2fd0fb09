//go:build linux

package vm

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// withFiles makes an image in dir: a copy of image with files added to its root file system, by their
// paths in the guest. It appends an archive, because the kernel unpacks several consecutive archives.
func withFiles(dir, image string, files map[string]string) error {
	if err := os.Symlink(filepath.Join(image, "vmlinuz"), filepath.Join(dir, "vmlinuz")); err != nil {
		return err
	}
	base, err := os.Open(filepath.Join(image, "initrd.gz"))
	if err != nil {
		return err
	}
	defer base.Close()
	out, err := os.Create(filepath.Join(dir, "initrd.gz"))
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, base); err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err != nil {
		return err
	}
	a := archive{w: z}
	known := map[string]bool{"/": true}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		a.addParents(path.Dir(name), known)
		b, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}
		a.add(strings.TrimPrefix(name, "/"), 0o100755, b)
	}
	a.add("TRAILER!!!", 0, nil)
	if a.err != nil {
		return a.err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return out.Close()
}

// archive writes a cpio archive in the format the kernel unpacks ("newc").
type archive struct {
	w   io.Writer
	ino int
	err error
}

// addParents adds a folder and its parents, unless they are known. The kernel does not change folders
// that exist already.
func (a *archive) addParents(dir string, known map[string]bool) {
	if known[dir] {
		return
	}
	known[dir] = true
	a.addParents(path.Dir(dir), known)
	a.add(strings.TrimPrefix(dir, "/"), 0o040755, nil)
}

func (a *archive) add(name string, mode int, data []byte) {
	a.ino++
	var b bytes.Buffer
	fmt.Fprintf(&b, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\x00",
		a.ino, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0, name)
	pad := func() { b.Write(make([]byte, -b.Len()&3)) }
	pad()
	b.Write(data)
	pad()
	if a.err == nil {
		_, a.err = a.w.Write(b.Bytes())
	}
}
