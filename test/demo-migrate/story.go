package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/flex2csi/flex2csi/test/demo/screen"
	"github.com/flex2csi/flex2csi/test/node"
)

// A story is told of a node.
type story struct {
	*screen.Story
	ctx      context.Context
	flex2csi string // the program
	images   string // the directory of images

	node    *node.Node
	started time.Time

	pod   pod  // the one that counts
	asked int  // calls of the CSI driver that were shown
	saw   seen // while the volume was migrated
}

// patience is more than anything here takes.
const patience = 3 * time.Minute

// command runs a program on the node and shows that it was run. What it says is
// returned.
func (t *story) command(name string, args ...string) string {
	if t.Failed != nil {
		return ""
	}
	start := time.Now()
	out, err := t.program(t.ctx, name, args...).CombinedOutput()
	t.ran(name, args, start, err)
	if err != nil {
		t.Fail("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out)
}

// quietly does the same and shows nothing.
func (t *story) quietly(name string, args ...string) string {
	if t.Failed != nil {
		return ""
	}
	out, err := t.program(t.ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fail("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return string(out)
}

// report keeps what a command of flex2csi shows to a team, as an HTML file.
func (t *story) report(file string, args ...string) {
	if t.Failed != nil {
		return
	}
	args = append(args, "-o", "html")
	start := time.Now()
	page, err := t.program(t.ctx, "flex2csi", args...).Output()
	t.ran("flex2csi", args, start, err)
	if err == nil && !bytes.HasPrefix(page, []byte("<!DOCTYPE html>")) {
		err = fmt.Errorf("it is no HTML: %.80s", page)
	}
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, page, 0o644))
	}
	t.Verify(err, "report", "%s, for a browser", file)
}

func (t *story) ran(name string, args []string, start time.Time, err error) {
	status, style := "done", screen.Green
	if err != nil {
		status, style = "failed", screen.Red
	}
	first, rest := args[0], args[1:]
	t.Call(name+" "+first, strings.Join(rest, " "), status, style, time.Since(start))
}

// program prepares one that runs on the node.
func (t *story) program(ctx context.Context, name string, args ...string) *exec.Cmd {
	path, env := name, t.node.Env()
	if name == "flex2csi" {
		path = t.flex2csi
	}
	if !strings.Contains(path, "/") {
		dirs, _, _ := strings.Cut(strings.TrimPrefix(env[0], "PATH="), ":/usr/local")
		for dir := range strings.SplitSeq(dirs, ":") {
			if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				path = found
				break
			}
		}
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = env
	cmd.WaitDelay = time.Second
	return cmd
}

// flow starts a program and returns its lines as they come. The channel is closed at its
// end; wait returns its error.
func (t *story) flow(name string, args ...string) (lines <-chan string, wait func() error, err error) {
	cmd := t.program(t.ctx, name, args...)
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		_ = writer.Close()
	}()
	out := make(chan string)
	go func() {
		defer close(out)
		for s := bufio.NewScanner(reader); s.Scan(); {
			out <- s.Text()
		}
	}()
	return out, func() error { return <-ended }, nil
}

// quote shows what a program says.
func (t *story) quote(mark, text string) {
	if t.Failed != nil {
		return
	}
	room := t.Width - len(screen.Indent) - utf8.RuneCountInString(mark)
	for l := range strings.Lines(strings.TrimSpace(text)) {
		for _, l := range fold(strings.TrimRight(l, "\n"), room) {
			t.Line("%s%s", screen.Indent, t.Paint(screen.Dim, strings.TrimRight(mark+l, " ")))
		}
	}
}

// fold breaks a line that is too long, further to the right each time after the
// first; a row of a table is clipped.
func fold(line string, room int) []string {
	words := strings.TrimLeft(line, " ")
	if utf8.RuneCountInString(line) <= room {
		return []string{line}
	}
	if strings.Count(words, "  ") > 2 {
		return []string{screen.Clip(line, room)}
	}
	indent := strings.Repeat(" ", len(line)-len(words))
	lines := screen.Wrap(words, room-len(indent)-4)
	for i := range lines {
		lines[i] = indent + lines[i]
		if i == 0 {
			indent += "    "
		}
	}
	return lines
}

// await waits until there is no error.
func (t *story) await(what string, ask func(ctx context.Context) error) {
	if t.Failed != nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	if err := node.Await(ctx, what, ask); err != nil {
		t.Fail("%w", err)
	}
}

// epilogue is one line, and whether all went well.
func (t *story) epilogue() bool {
	if t.node != nil {
		if err := t.node.Stop(); err != nil && t.Failed == nil {
			t.Fail("stop the node: %w", err)
		}
	}
	if t.Failed == nil && t.ctx.Err() != nil {
		t.Fail("%w", errors.New("interrupted"))
	}
	if t.Failed != nil {
		t.Line("\n %s %s\n", t.Paint(screen.Red, "✗"), t.Paint(screen.Bold, "stopped here: this is not as it should be"))
		return false
	}
	t.Line("\n %s %s %s\n", t.Paint(screen.Green, "✓"), t.Paint(screen.Bold, fmt.Sprintf("%d checks, nothing left.", t.Seen)),
		t.Paint(screen.Dim, fmt.Sprintf("All of it took %.0f s.", time.Since(t.started).Seconds())))
	return true
}
