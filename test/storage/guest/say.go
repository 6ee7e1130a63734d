package guest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// own is where a guest sees the folder that was made for it.
	own = "/mnt"
	// A line that is said begins and ends with these: the kernel may write between.
	begin, end = "said: ", " ;"
)

// thisBoot is the boot that this process is in.
func thisBoot(t *testing.T) (*Boot, error) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(own, bootFile))
	if err != nil {
		return nil, err
	}
	b := &Boot{t: t}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, err
	}
	b.console, err = os.OpenFile("/dev/console", os.O_WRONLY|unix.O_NOCTTY, 0)
	t.Cleanup(func() { b.failed() })
	return b, err
}

// Say tells the machine of the guest something. When it returns, the line has left the guest. It
// ends the test t if any part of the boot's test has failed.
func (b *Boot) Say(t *testing.T, format string, args ...any) {
	t.Helper()
	if b.failed() {
		t.FailNow()
	}
	if err := b.say(fmt.Sprintf(format, args...)); err != nil {
		t.Fatalf("say: %v", err)
	}
}

// failed reports whether the test has failed, and tells so.
func (b *Boot) failed() bool {
	if b.t.Failed() {
		_ = b.say(failed) // the guest ends with its status
		return true
	}
	return false
}

func (b *Boot) say(line string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.console.WriteString(begin + line + end + "\n")
	return err
}

// A listener gets what the console of a guest shows.
type listener struct {
	text io.Writer
	// line has what came after the last whole line.
	line string
	said []string
	// hear is called after each line that was said.
	hear func(said []string)
}

func (l *listener) Write(p []byte) (int, error) {
	if n, err := l.text.Write(p); err != nil {
		return n, err
	}
	lines := strings.Split(l.line+string(p), "\n")
	l.line = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		_, line, begun := strings.Cut(strings.TrimSuffix(line, "\r"), begin)
		if line, ended := strings.CutSuffix(line, end); begun && ended {
			l.said = append(l.said, line)
			l.hear(l.said)
		}
	}
	return len(p), nil
}
