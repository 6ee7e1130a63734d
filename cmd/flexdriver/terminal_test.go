package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// scriptTerminal runs a program as at a terminal. Standard output and error
// get a terminal each, so that a script can tell them apart.
func scriptTerminal(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: [!] terminal PROGRAM [ARGUMENT]...")
	}
	program := args[0]
	for dir := range strings.SplitSeq(ts.Getenv("PATH"), ":") {
		if _, err := os.Stat(dir + "/" + args[0]); err == nil {
			program = dir + "/" + args[0]
			break
		}
	}
	cmd := exec.Command(program, args[1:]...)
	cmd.Env = []string{"PATH=" + ts.Getenv("PATH"), "TERM=xterm"}
	stdout, stderr, err := runAtTerminal(cmd)
	fmt.Fprint(ts.Stdout(), stdout)
	fmt.Fprint(ts.Stderr(), stderr)
	if _, failed := err.(*exec.ExitError); failed != neg || err != nil && !failed {
		ts.Fatalf("%s ended with: %v", args[0], err)
	}
}

// runAtTerminal runs cmd with a pseudo-terminal for each of its two streams.
func runAtTerminal(cmd *exec.Cmd) (stdout, stderr string, err error) {
	out, err := newTerminal()
	if err != nil {
		return "", "", err
	}
	errs, err := newTerminal()
	if err != nil {
		return "", "", err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = out.program, out.program, errs.program
	err = cmd.Run()
	return out.text(), errs.text(), err
}

// A pty is both ends of a pseudo-terminal (pty(7)).
type pty struct {
	person, program *os.File
	read            chan string
}

func newTerminal() (*pty, error) {
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	program, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t := &pty{person, program, make(chan string, 1)}
	go func() {
		// EIO is how a terminal says that its last program is gone.
		text, _ := io.ReadAll(person)
		t.read <- string(text)
	}()
	return t, nil
}

// text returns what was shown, once all programs have let go.
func (t *pty) text() string {
	t.program.Close()
	defer t.person.Close()
	return strings.ReplaceAll(<-t.read, "\r\n", "\n")
}

func TestTerminalIsOne(t *testing.T) {
	stdout, stderr, err := runAtTerminal(exec.Command("sh", "-c", "test -t 1 && test -t 2 && echo out && echo err >&2"))
	if stdout != "out\n" || stderr != "err\n" || err != nil {
		t.Errorf("got %q, %q and %v", stdout, stderr, err)
	}
}
