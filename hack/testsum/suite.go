package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// event is one line of go test -json (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output and build-fail, instead of Package
	Test       string
	Output     string
	Elapsed    float64
}

// counts is what a step adds up to, and one line of the results file.
type counts struct {
	Step    string
	Passed  int
	Failed  int
	Skipped int
}

// suite follows one or more runs of go test.
type suite struct {
	out       io.Writer
	skipsFine bool // a skipped test does not count at all
	skipFails bool // a skipped test counts as failed
	verbose   bool // print the output of what passed, too

	counts // Step is set by the caller
	began  time.Time
	output map[string]*strings.Builder // by package and test
	inPkg  map[string]*counts
}

// goTest runs go test -json with args and counts its tests. Its error tells of
// trouble other than failed tests.
func (s *suite) goTest(ctx context.Context, args []string) error {
	if s.began.IsZero() {
		s.began = time.Now()
	}
	s.output, s.inPkg = map[string]*strings.Builder{}, map[string]*counts{}
	failedBefore := s.Failed

	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	// go test waits for the tests that run, so they have to be told as well.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.Stderr = s.out
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := s.read(stdout)
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil && s.Failed > failedBefore {
		err = nil // accounted for
	}
	return errors.Join(readErr, err)
}

func (s *suite) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			s.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the output of go test: %w", err)
		}
	}
}

func (s *suite) line(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || !bytes.HasPrefix(line, []byte("{")) {
		fmt.Fprintf(s.out, "%s", line) // go itself complains, in plain text
		return
	}
	switch e.Action {
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "output":
		s.keep(e)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(e)
		}
	}
}

func (s *suite) keep(e event) {
	key := e.Package + " " + e.Test
	if s.output[key] == nil {
		s.output[key] = new(strings.Builder)
	}
	s.output[key].WriteString(e.Output)
	if s.verbose {
		fmt.Fprint(s.out, e.Output)
	}
}

// take returns and forgets what a test, or a package outside its tests, wrote.
func (s *suite) take(pkg, test string) string {
	key := pkg + " " + test
	text := s.output[key]
	delete(s.output, key)
	if text == nil || s.verbose {
		return ""
	}
	return text.String()
}

func (s *suite) endTest(e event) {
	text := s.take(e.Package, e.Test)
	n := s.pkg(e.Package)
	switch e.Action {
	case "pass":
		n.Passed++
	case "fail":
		n.Failed++
		fmt.Fprintf(s.out, "FAIL %s %s\n%s", e.Package, e.Test, indent(text))
	case "skip":
		n.Skipped++
		reason, _, _ := strings.Cut(indent(text), "\n") // a script says more, all of it known
		fmt.Fprintf(s.out, "SKIP %s %s: %s\n", e.Package, e.Test, strings.TrimSpace(reason))
	}
}

func (s *suite) endPackage(e event) {
	text := s.take(e.Package, "")
	n := s.pkg(e.Package)
	if e.Action == "fail" && n.Failed == 0 {
		n.Failed++ // it did not build, or ended outside of a test
		fmt.Fprintf(s.out, "FAIL %s\n%s", e.Package, indent(text))
	}
	s.Passed += n.Passed
	s.Failed += n.Failed
	s.Skipped += n.Skipped
	if e.Action != "skip" { // skip: a package without tests
		fmt.Fprintf(s.out, "%-4s %s  %d tests  %.1fs\n", e.Action, e.Package, n.Passed+n.Failed+n.Skipped, e.Elapsed)
	}
}

func (s *suite) pkg(name string) *counts {
	if s.inPkg[name] == nil {
		s.inPkg[name] = new(counts)
	}
	return s.inPkg[name]
}

// close reports on the step, appends it to the results file and returns the
// error that ends the program.
func (s *suite) close(results string, err error) error {
	skipped := s.Skipped
	switch {
	case s.skipsFine:
		s.Skipped = 0
	case s.skipFails:
		s.Failed, s.Skipped = s.Failed+skipped, 0
	}
	if err == nil && s.Passed+s.Failed+s.Skipped == 0 {
		err = errors.New("no test ran")
	}
	if err != nil {
		s.Failed++
	}
	// Not in the words of total: that line must be the only one of its kind.
	fmt.Fprintf(s.out, "==== %s: %d ok, %d not, %d left out, %.0f s\n", s.Step, s.Passed, s.Failed, skipped, time.Since(s.began).Seconds())
	if results != "" {
		err = errors.Join(err, s.appendTo(results))
	}
	if err == nil && s.Failed > 0 {
		err = fmt.Errorf("%s failed", s.Step)
		if s.skipFails && !s.skipsFine && skipped > 0 {
			err = fmt.Errorf("%s failed; %d tests were skipped, which FLEX_TEST_REQUIRE=all forbids", s.Step, skipped)
		}
	}
	return err
}

func (c counts) appendTo(name string) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// indent sets text off and drops the lines that only say what is known.
func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if trimmed := strings.TrimSpace(line); trimmed == "" || strings.HasPrefix(trimmed, "=== ") {
			continue
		}
		b.WriteString("     " + strings.TrimRight(line, "\n") + "\n")
	}
	return b.String()
}

// lockedWriter lets go test's stderr and our own lines share one writer.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
