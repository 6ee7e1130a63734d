package faults

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/test/csidriver/calls"
)

// account helps to understand what went wrong: what happened to the world, and the state
// of the named volumes.
func (w *world) account() string {
	var b strings.Builder
	fmt.Fprintf(&b, "--- what happened\n%s", w.history.String())
	names := regexp.MustCompile(`\bvol-\d+\b`).FindAllString(strings.Join(w.report.Wrong, " "), -1)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		pv := strings.Replace(name, "vol-", "pv-", 1)
		fmt.Fprintf(&b, "--- the driver's calls for %s\n%s", name, w.callsFor(name))
		fmt.Fprintf(&b, "--- the daemon on %s\n%s", name, grep(w.path("daemon.log"), name, pv))
		records, _ := w.records() // as many as there are
		for _, r := range records {
			if text, err := os.ReadFile(r); err == nil && strings.Contains(string(text), `"`+name+`"`) {
				fmt.Fprintf(&b, "--- its record\n%s", text)
			}
		}
	}
	fmt.Fprintf(&b, "--- the daemon, last\n%s--- the driver, last\n%s", tail(w.path("daemon.log"), 10), tail(w.path("driver.log"), 5))
	return strings.ReplaceAll(b.String(), w.Dir, "…")
}

// envKeep names a directory for what is left of worlds that went wrong.
const envKeep = "FAULTS_KEEP"

// keep copies the logs, since a world ends with its process.
func (w *world) keep() string {
	dir := os.Getenv(envKeep)
	if dir == "" {
		return "set " + envKeep + "=DIRECTORY to keep all logs of such a world"
	}
	dir = filepath.Join(dir, strings.ReplaceAll(w.Name, " ", "-")+fmt.Sprintf("-%d", w.Seed))
	err := os.MkdirAll(dir, 0o755)
	for _, name := range []string{"daemon.log", "driver.log", "calls", "config.yaml"} {
		text, readErr := os.ReadFile(w.path(name))
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	err = errors.Join(err, os.CopyFS(filepath.Join(dir, "state"), os.DirFS(w.stateDir())))
	if err != nil {
		return err.Error()
	}
	return "its logs are in " + dir
}

// mostLines of one kind are shown, from the end.
const mostLines = 60

func (w *world) callsFor(name string) string {
	list, err := calls.Read(w.callLog())
	if err != nil {
		return err.Error() + "\n"
	}
	var lines []string
	for _, c := range list {
		if c.Volume != name {
			continue
		}
		end := "never"
		if c.Ended() {
			end = c.End.UTC().Format("15:04:05.000")
		}
		lines = append(lines, fmt.Sprintf("%s-%s %s %s: %s (work: %s) %s\n", c.Start.UTC().Format("15:04:05.000"), end, c.Method, c.Path, c.Code, c.Work, c.Message))
	}
	return last(lines, mostLines)
}

// grep returns the lines that have one of the words in them.
func grep(name string, words ...string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error() + "\n"
	}
	word := regexp.MustCompile(`\b(` + strings.Join(words, "|") + `)\b`)
	var lines []string
	for line := range strings.Lines(string(text)) {
		if word.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return last(lines, mostLines)
}

// tail returns the last lines of a file.
func tail(name string, lines int) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error() + "\n"
	}
	return last(strings.SplitAfter(string(text), "\n"), lines)
}

func last(lines []string, n int) string { return strings.Join(lines[max(0, len(lines)-n):], "") }
