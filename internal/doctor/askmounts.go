//go:build linux

package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// AnswerMounts runs in a process of its own, which may hang. It reads paths, each
// terminated by NUL, and writes for each a line with its number and what is wrong with
// it. A mount that hangs gets no line. The process exits when all have answered, after
// maxAnswering, or when it is killed. The parent does not wait for a process that
// cannot be killed.
func AnswerMounts(in io.Reader, out io.Writer) error {
	data, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	var asked sync.WaitGroup
	var writing sync.Mutex
	for i, path := range strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00") {
		if path == "" {
			continue
		}
		asked.Go(func() {
			answer := ""
			if err := alive(path); err != nil {
				answer = err.Error()
			}
			writing.Lock()
			defer writing.Unlock()
			fmt.Fprintf(out, "%d %s\n", i, answer)
		})
	}
	all := make(chan struct{})
	go func() {
		asked.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(maxAnswering):
	}
	return nil
}

// maxAnswering bounds a process if its parent was killed.
const maxAnswering = time.Minute

// alive calls statfs and stat: network filesystems answer one of them from memory, and
// other filesystems the other.
func alive(path string) error {
	var figures unix.Statfs_t
	if err := unix.Statfs(path, &figures); err != nil {
		return err
	}
	var root unix.Stat_t
	if err := unix.Stat(path, &root); err != nil && (err == unix.ENOTCONN || err == unix.ESTALE || err == unix.EIO || err == unix.EHOSTDOWN || err == unix.ENODEV) {
		return err
	}
	return nil
}

// askMounts returns the answer of each path: "" if it works. Paths that did not answer in
// time are missing.
func (p *probe) askMounts(ctx context.Context, paths []string) (map[string]string, error) {
	if len(paths) == 0 {
		return map[string]string{}, nil
	}
	if len(p.AskMounts) == 0 {
		return nil, errors.New("there is no program to ask them with")
	}
	// Not CommandContext: its Wait would wait for a process that cannot be killed.
	cmd := exec.Command(p.AskMounts[0], p.AskMounts[1:]...) //nolint:noctx // see above
	cmd.Stdin = strings.NewReader(strings.Join(paths, "\x00") + "\x00")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	defer func() {
		_ = cmd.Process.Kill()
		go func() {
			for range lines { // until the pipe is closed
			}
			_ = cmd.Wait()
		}()
	}()
	ctx, cancel := context.WithTimeout(ctx, p.Timeout/2)
	defer cancel()
	return collect(ctx, lines, paths)
}

// collect reads answers until it has all, or until the deadline. If the process ends
// earlier it has not asked all.
func collect(ctx context.Context, lines <-chan string, paths []string) (map[string]string, error) {
	answers := map[string]string{}
	for len(answers) < len(paths) {
		select {
		case line, more := <-lines:
			if !more {
				return nil, fmt.Errorf("the process that asks them ended after %d of %d", len(answers), len(paths))
			}
			number, answer, _ := strings.Cut(line, " ")
			if i, err := strconv.Atoi(number); err == nil && i < len(paths) {
				answers[paths[i]] = answer
			}
		case <-ctx.Done():
			return answers, nil
		}
	}
	return answers, nil
}
