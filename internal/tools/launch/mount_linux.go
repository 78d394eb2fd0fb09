package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/machine"
)

// Paths that programs read.
const (
	sysClass = "/sys/class"
	dev      = "/dev"
	devIB    = "/dev/infiniband"
)

// mountAll mounts the devices in /sys/class and /dev of the calling thread, which has a separate mount namespace. Only the
// program sees the mounts, and they end with the namespace.
func mountAll(devices []machine.Info) error {
	// Mounts of the host still propagate to here, but mounts made here do not propagate to the host.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	work, err := workDir()
	if err != nil {
		return err
	}
	if err := mountTmpfs(work); err != nil {
		return err
	}
	err = errors.Join(mountClass(filepath.Join(work, "class"), classTree(devices)), mountDev(filepath.Join(work, "dev"), nodes(devices)))
	// The mounts that were made from this file system stay valid after the unmount.
	if uerr := unix.Unmount(work, unix.MNT_DETACH); uerr != nil {
		err = errors.Join(err, fmt.Errorf("unmount %s: %w", work, uerr))
	}
	return err
}

// workDir returns a folder that can be a mount point for a moment.
func workDir() (string, error) {
	for _, d := range []string{"/tmp", "/mnt", "/run", "/var"} {
		if info, err := os.Stat(d); err == nil && info.IsDir() {
			return d, nil
		}
	}
	return "", errors.New("there is no folder /tmp to mount something on for a moment")
}

func mountTmpfs(at string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("roce", at, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755"); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", at, err)
	}
	return nil
}

// bind mounts a file or folder, with the mounts below it, at another place.
func bind(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", from, to, err)
	}
	return nil
}

// mountClass adds the folders of a tree to /sys/class. No program can create files there, so an overlay shows them beside
// the host's. They cover folders of the host with the same name, since the program must not see the host's devices.
func mountClass(work string, tree map[string]string) error {
	covered, added := filepath.Join(work, "covered"), filepath.Join(work, "added")
	var cover []string
	overlay := false
	for name, text := range tree {
		top, _, _ := strings.Cut(name, "/")
		at := filepath.Join(added, name)
		if _, err := os.Lstat(filepath.Join(sysClass, top)); err == nil {
			at = filepath.Join(covered, name)
			if name == top+"/" {
				cover = append(cover, top)
			}
		} else {
			overlay = true
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(at, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, []byte(text), 0o444); err != nil {
			return err
		}
	}
	if overlay {
		if err := unix.Mount("roce", sysClass, "overlay", unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, "lowerdir="+added+":"+sysClass); err != nil {
			return fmt.Errorf("mount an overlay on %s: %w", sysClass, err)
		}
	}
	for _, top := range cover {
		if err := bind(filepath.Join(covered, top), filepath.Join(sysClass, top)); err != nil {
			return err
		}
	}
	return nil
}

// mountDev adds nodes to /dev/infiniband. Programs check whether they exist and do not open them, since the libraries do
// not need them. So each is a bind mount of /dev/null, which needs no privilege. If /dev has no such folder, mountDev
// replaces /dev by a new one with the same content.
func mountDev(work string, nodes []string) error {
	at := devIB
	_, err := os.Stat(devIB)
	switch {
	case err == nil:
		err = mountTmpfs(devIB)
	case errors.Is(err, fs.ErrNotExist):
		at = filepath.Join(work, filepath.Base(devIB))
		err = copyDev(work)
	}
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := bindNode(filepath.Join(dev, "null"), filepath.Join(at, n)); err != nil {
			return err
		}
	}
	if at == devIB {
		return nil
	}
	if err := unix.Mount(work, dev, "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move a new /dev to its place: %w", err)
	}
	return nil
}

// copyDev makes a folder with the content of /dev, and /dev/infiniband.
func copyDev(to string) error {
	if err := mountTmpfs(to); err != nil {
		return err
	}
	entries, err := os.ReadDir(dev)
	if err != nil {
		return err
	}
	for _, e := range entries {
		from, at := filepath.Join(dev, e.Name()), filepath.Join(to, e.Name())
		switch e.Type() & fs.ModeType {
		case fs.ModeSymlink:
			var target string
			if target, err = os.Readlink(from); err == nil {
				err = os.Symlink(target, at)
			}
		case fs.ModeDir:
			if err = os.Mkdir(at, 0o755); err == nil {
				err = bind(from, at)
			}
		default:
			err = bindNode(from, at)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have been removed meanwhile
			return err
		}
	}
	return os.Mkdir(filepath.Join(to, filepath.Base(devIB)), 0o755)
}

// bindNode mounts a device node, or another file, on a new file.
func bindNode(from, at string) error {
	if err := os.WriteFile(at, nil, 0o644); err != nil {
		return err
	}
	return bind(from, at)
}
