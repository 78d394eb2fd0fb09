package share

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/link"
)

// The environment of a process that plays a user: the address, and the file that names the group.
const userKey, userGroupFile = "ROCE_SHARE_TEST_USER", "ROCE_SHARE_TEST_GROUP_FILE"

// userProcess is a process of another user, seen from the test.
type userProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// startUser starts a process of a user, which joins an address.
func startUser(t *testing.T, key, file string, c syscall.Credential) *userProcess {
	t.Helper()
	u := &userProcess{t: t, cmd: exec.Command("/proc/self/exe", "-test.run=^TestUsersOfGroup$")}
	u.cmd.Env = append(os.Environ(), userKey+"="+key, userGroupFile+"="+file)
	u.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &c}
	var err error
	if u.in, err = u.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := u.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	u.lines = bufio.NewScanner(out)
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.kill)
	return u
}

func (u *userProcess) kill() {
	u.cmd.Process.Kill()
	u.cmd.Wait()
}

// says returns the next line of the process, without the word at its beginning. The line must
// begin with that word.
func (u *userProcess) says(word string) string {
	u.t.Helper()
	if !u.lines.Scan() {
		u.t.Fatalf("the process has ended, want %q: %v", word, u.lines.Err())
	}
	rest, ok := strings.CutPrefix(u.lines.Text(), word+" ")
	if !ok {
		u.t.Fatalf("the process says %q, want %q", u.lines.Text(), word)
	}
	return rest
}

// play runs in such a process. It prints its slot, or why it has none, prints the packets from
// others, and sends the packets that the test writes to its standard input.
func play(t *testing.T, key string) {
	groupFile = os.Getenv(userGroupFile)
	p, err := Join(Config{Key: key, Slots: 1, Medium: new(fakeMedium)})
	if err != nil {
		fmt.Println("refused", err)
		return
	}
	defer p.Close()
	fmt.Println("joined", p.Slots()[0])
	if err := p.Receive(func(p *Packet) { fmt.Printf("got %s\n", p.Frame.Data) }); err != nil {
		t.Fatal(err)
	}
	out := p.NewOut()
	for {
		var to Slot
		var text string
		if _, err := fmt.Scanln(&to, &text); err != nil {
			return
		}
		out.Add(to, &link.Frame{Data: []byte(text)}, false)
		out.Flush()
	}
}

// The users of the group that the administrator has named share an address, whether it is their
// first group or a further one: they get slots, pass packets, and become the keeper after another
// one. Others are refused.
func TestUsersOfGroup(t *testing.T) {
	if k := os.Getenv(userKey); k != "" {
		play(t, k)
		return
	}
	if unix.Geteuid() != 0 {
		t.Skip("needs root, to start processes of other users")
	}
	const group = 51234
	first := syscall.Credential{Uid: 51001, Gid: group}
	second := syscall.Credential{Uid: 51002, Gid: 51002, Groups: []uint32{51003, group}}
	other := syscall.Credential{Uid: 51004, Gid: 51004}
	dir := t.TempDir()
	file := filepath.Join(dir, "share-group")
	if err := os.WriteFile(file, fmt.Appendln(nil, group), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	k := key(t)
	a := startUser(t, k, file, first)
	at := a.says("joined")
	b := startUser(t, k, file, second)
	bt := b.says("joined")
	fmt.Fprintln(a.in, bt, "hello")
	if got := b.says("got"); got != "hello" {
		t.Errorf("the second user got %q", got)
	}
	fmt.Fprintln(b.in, at, "hi")
	if got := a.says("got"); got != "hi" {
		t.Errorf("the first user got %q", got)
	}
	if why := startUser(t, k, file, other).says("refused"); !strings.Contains(why, "is shared by the programs of user 51001") {
		t.Errorf("a user who is not in the group: %s", why)
	}
	a.kill() // the keeper
	c := startUser(t, k, file, first)
	ct := c.says("joined")
	fmt.Fprintln(b.in, ct, "again")
	if got := c.says("got"); got != "again" {
		t.Errorf("the first user got %q after the keeper was killed", got)
	}
	if why := startUser(t, k, file, other).says("refused"); !strings.Contains(why, "is shared by the programs of user 51002") {
		t.Errorf("a user who is not in the group: %s", why)
	}
	if why := startUser(t, k, file+" of nobody", second).says("joined"); why == "" {
		t.Error("a user does not share with himself")
	}
	if why := startUser(t, k, file+" of nobody", first).says("refused"); !strings.Contains(why, "51002") {
		t.Errorf("without the file: %s", why)
	}
}
