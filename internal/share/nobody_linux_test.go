package share

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// In a user namespace the kernel shows unmapped users as nobody. A process of the user nobody
// there does not share with them.
func TestNobody(t *testing.T) {
	const name, nobody = "ROCE_SHARE_TEST_KEY", 65534
	if k := os.Getenv(name); k != "" {
		join(t, k, 1, new(fakeMedium))
		join(t, k, 1, new(fakeMedium)) // a process shares with itself
		os.Stdout.WriteString("joined\n")
		os.Stdin.Read(make([]byte, 1))
		return
	}
	if unix.Geteuid() != 0 {
		t.Skip("needs root, to start a process of nobody in a user namespace")
	}
	c := exec.Command("/proc/self/exe", "-test.run=^TestNobody$")
	k := key(t)
	c.Env = append(os.Environ(), name+"="+k)
	one := []syscall.SysProcIDMap{{ContainerID: nobody, HostID: nobody, Size: 1}}
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: one, GidMappings: one, Credential: &syscall.Credential{Uid: nobody, Gid: nobody, NoSetGroups: true}}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Skipf("no user namespace: %v", err)
	}
	defer c.Wait()
	defer in.Close()
	room := make([]byte, 99)
	if n, err := out.Read(room); err != nil || string(room[:n]) != "joined\n" {
		t.Fatalf("the process of nobody says %q, %v", room[:n], err)
	}
	l, err := dial(keeperName(k).Name) // root, which the namespace does not map
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.send(message{Op: opJoin, Protocol: protocol, Want: 1}); err != nil {
		t.Fatal(err)
	}
	m, files, err := l.receive()
	closeAll(files)
	if err != nil || m.Errno != syscall.EADDRINUSE || len(files) > 0 {
		t.Errorf("answer %+v with %d descriptors, %v", m, len(files), err)
	}
}
