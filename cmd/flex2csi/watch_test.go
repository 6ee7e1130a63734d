//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/terminal"
)

// TestWatch: what has changed is shown, what has not is not, and an error in between ends nothing.
func TestWatch(t *testing.T) {
	steps := []string{"a\n", "a\n", "!gone", "!gone", "b\n", "!gone", "end"}
	ctx, cancel := context.WithCancel(t.Context())
	var out, errs bytes.Buffer
	err := (&watchOption{watch: true, every: time.Millisecond}).show(ctx, environment{out: &out, err: &errs}, func(_ context.Context, env environment) error {
		step := steps[0]
		steps = steps[1:]
		if step == "end" {
			cancel()
			return ctx.Err()
		}
		if why, bad := strings.CutPrefix(step, "!"); bad {
			return errors.New(why)
		}
		fmt.Fprint(env.err, "note\n")
		_, err := fmt.Fprint(env.out, step)
		return err
	})
	if err != nil || out.String() != "a\nb\n" || errs.String() != "note\ngone\ngone\n" {
		t.Errorf("%v, out %q, err %q", err, out.String(), errs.String())
	}
	err = (&watchOption{watch: true}).show(t.Context(), environment{out: &out, err: &errs}, func(context.Context, environment) error { return os.ErrNotExist })
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what fails at once: %v", err)
	}
}

// pty returns both ends of a terminal.
func pty(t *testing.T) (screen, program *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { program.Close() })
	return screen, program
}

// shown returns what the screen has got. A read may have a part of it.
func shown(t *testing.T, screen, program *os.File) string {
	t.Helper()
	const end = "END\r\n"
	if _, err := fmt.Fprintln(program, "END"); err != nil {
		t.Fatal(err)
	}
	var all []byte
	for part := make([]byte, 1000); !bytes.HasSuffix(all, []byte(end)); {
		n, err := screen.Read(part)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, part[:n]...)
	}
	return string(bytes.TrimSuffix(all, []byte(end)))
}

// TestColor: there is color on a terminal that has it, and not where NO_COLOR is set; a text of
// the cluster has none.
func TestColor(t *testing.T) {
	for _, tt := range []struct{ term, no, want string }{
		{"xterm", "", "\x1b[31mERROR\x1b[0m: \x1b[33mWARNING\x1b[0m \\u001b[31mERRORS\r\n"},
		{"xterm", "1", "ERROR: WARNING \\u001b[31mERRORS\r\n"},
		{"dumb", "", "ERROR: WARNING \\u001b[31mERRORS\r\n"},
	} {
		t.Setenv("TERM", tt.term)
		t.Setenv("NO_COLOR", tt.no)
		screen, program := pty(t)
		if _, err := fmt.Fprint(&terminal.Writer{To: colored(program)}, "ERROR: WARNING \x1b[31mERRORS\n"); err != nil {
			t.Fatal(err)
		}
		if got := shown(t, screen, program); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.term+tt.no, got, tt.want)
		}
	}
	if b := new(bytes.Buffer); colored(b) != b {
		t.Error("a pipe gets color")
	}
}

// TestWatchTerminal: on a terminal a document takes the place of the one before.
func TestWatchTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	screen, program := pty(t)
	w := &changes{to: &terminal.Writer{To: colored(program)}}
	for _, document := range []string{"one\n", "one\n", "two\n"} {
		if _, err := w.Write([]byte(document)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := shown(t, screen, program), "\x1b[H\x1b[2Jone\r\n\x1b[H\x1b[2Jtwo\r\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
