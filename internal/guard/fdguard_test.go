package guard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary runs itself as a guarded process: descriptors 1 and 2 belong
// to the whole process, so they cannot be taken away from a test.
const roleEnv = "FDGUARD_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(guarded(role))
	}
	os.Exit(m.Run())
}

func guarded(role string) int {
	reply, err := ClaimOutput()
	if err != nil {
		return 3
	}
	defer reply.Close()
	if flags, err := unix.FcntlInt(uintptr(reply.fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 || reply.fd < first {
		return 7 // a child would inherit the answer's descriptor
	}
	fmt.Println("noise")
	fmt.Fprintln(os.Stderr, "noise")
	println("noise")
	child := exec.Command("sh", "-c", "echo noise; echo noise >&2; sleep 5 &")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Run(); err != nil {
		return 5
	}
	if _, err := io.WriteString(reply, "answer\n"); err != nil {
		return 6
	}
	if reply.Human != nil {
		fmt.Fprintln(reply.Human, "hello")
	}
	return 0
}

func process(t *testing.T, role string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role, "GORACE=atexit_sleep_ms=0")
	return cmd
}

func TestClaimKeepsNoiseAndChildrenOut(t *testing.T) {
	start := time.Now()
	output, err := process(t, "speaks").CombinedOutput()
	if err != nil || string(output) != "answer\n" {
		t.Errorf("got %q, %v", output, err)
	}
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("the caller waited %v for a child of ours", took)
	}
}

func TestClaimWithClosedStreams(t *testing.T) {
	for _, closed := range []string{">&-", "2>&-", "<&-", "<&- >&- 2>&-"} {
		cmd := process(t, "speaks")
		cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `exec "$0" ` + closed, os.Args[0]}
		output, err := cmd.CombinedOutput()
		want := "answer\n"
		if strings.Contains(closed, " >&-") || closed == ">&-" {
			want = ""
		}
		if err != nil || string(output) != want {
			t.Errorf("%s: got %q, %v, want %q", closed, output, err, want)
		}
	}
}

// An operator at a terminal gets messages on it, and the answer still goes to the
// standard output.
func TestHumanAtTerminal(t *testing.T) {
	master, slave := openTerminal(t)
	cmd := process(t, "speaks")
	cmd.Stderr = slave
	output, err := cmd.Output()
	if err != nil || string(output) != "answer\n" {
		t.Errorf("got %q, %v", output, err)
	}
	buf := make([]byte, 100)
	n, err := master.Read(buf)
	if got := strings.TrimSpace(string(buf[:n])); err != nil || got != "hello" {
		t.Errorf("the terminal shows %q, %v", got, err)
	}
}

func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = slave.Close() })
	return master, slave
}

// pipe returns the descriptor of the writing end, and the reading end.
func pipe(t *testing.T, flags int) (*os.File, int) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], flags|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	r := os.NewFile(uintptr(fds[0]), "pipe")
	t.Cleanup(func() { _ = r.Close(); _ = unix.Close(fds[1]) })
	return r, fds[1]
}

func TestWriteGivesUp(t *testing.T) {
	_, w := pipe(t, 0)
	reply := &Reply{fd: w, patience: 50 * time.Millisecond}
	n, err := reply.Write(make([]byte, 1<<20)) // more than a pipe holds
	if !errors.Is(err, errStuck) || n != 1<<16 {
		t.Errorf("wrote %d: %v", n, err)
	}
}

func TestWriteToSlowReader(t *testing.T) {
	for name, flags := range map[string]int{"blocking": 0, "non-blocking": unix.O_NONBLOCK} {
		t.Run(name, func(t *testing.T) {
			r, w := pipe(t, flags)
			want := bytes.Repeat([]byte("0123456789"), 20_000)
			go func() {
				reply := &Reply{fd: w, patience: 10 * time.Second}
				_, _ = reply.Write(want)
			}()
			time.Sleep(20 * time.Millisecond)
			got := make([]byte, len(want))
			if _, err := io.ReadFull(r, got); err != nil || !bytes.Equal(got, want) {
				t.Errorf("something else arrives: %v", err)
			}
		})
	}
}

func TestWriteErrors(t *testing.T) {
	r, w := pipe(t, 0)
	_ = r.Close()
	reply := &Reply{fd: w, patience: time.Second}
	if _, err := reply.Write([]byte("x")); !errors.Is(err, unix.EPIPE) {
		t.Errorf("no reader: got %v", err)
	}
	full, err := unix.Open("/dev/full", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(full)
	reply = &Reply{fd: full, patience: time.Second}
	if _, err := reply.Write([]byte("x")); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("no space: got %v", err)
	}
	reply = &Reply{fd: 1 << 20, patience: time.Second}
	if _, err := reply.Write([]byte("x")); !errors.Is(err, unix.EBADF) {
		t.Errorf("closed: got %v", err)
	}
}

func TestSinkWithoutDevNull(t *testing.T) {
	fd, err := openSink("/nonexistent/null")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if n, err := unix.Write(fd, []byte("noise")); n != 5 || err != nil {
		t.Errorf("wrote %d: %v", n, err)
	}
}
