package escape

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/trace"
)

// judge holds an answer to the rules.
func (a *attempt) judge(r *trace.Watched) (status string, escapes []string) {
	var answer struct{ Status, Message string }
	decoder := json.NewDecoder(bytes.NewReader(r.Answer))
	if err := decoder.Decode(&answer); err != nil || decoder.More() {
		return "", []string{fmt.Sprintf("answer is not one JSON object: %q (late: %t, status %#x)", cut(r.Answer), r.Late, r.Status)}
	}
	if r.Late || r.Status != 0 {
		escapes = append(escapes, fmt.Sprintf("answer came with status %#x, late: %t", r.Status, r.Late))
	}
	if bytes.Contains(r.Answer, []byte(canary)) && !a.contains(canary) {
		escapes = append(escapes, fmt.Sprintf("answer has the content of a canary: %q", cut(r.Answer)))
	}
	for key, secret := range a.secrets {
		if shows(string(r.Answer), secret) {
			escapes = append(escapes, fmt.Sprintf("answer has the secret %s", key))
		}
	}
	return answer.Status, escapes
}

// obeyed says what a driver has done that had to refuse the call, or "".
func (w *world) obeyed(d *driver, a *attempt, command flex.Command, status string) string {
	takesDown := slices.Contains([]flex.Command{flex.CommandUnmount, flex.CommandUnmountDevice, flex.CommandDetach}, command)
	if status != "Success" || takesDown || len(a.options) == 0 {
		return ""
	}
	if d.refusal != "" || d.socket != "" { // the daemon knows the options of its drivers
		return d.refusal
	}
	for option, value := range a.options {
		if belowAny(filepath.Clean(value), w.otherRoots, w.linkedRoots) {
			return "uses a root that another user can replace"
		}
		if !slices.Contains([]string{"image", "device", "source", "path", "medium", "size", "mountOptions", "seLinuxContext"}, option) {
			return "takes the option " + option
		}
	}
	return ""
}

// leaks are secrets of a call that are in a file after it.
func (w *world) leaks(d *driver, a *attempt) (escapes []string) {
	look := func(path string) {
		text, _ := os.ReadFile(path)
		for key, secret := range a.secrets {
			if shows(string(text), secret) {
				escapes = append(escapes, fmt.Sprintf("%s has the secret %s", path, key))
			}
		}
	}
	if len(a.secrets) == 0 {
		return nil
	}
	for _, dir := range []string{w.dir + "/run", filepath.Dir(d.program), w.kubelet + "/plugins"} {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() && path != d.binary {
				look(path)
			}
			return nil
		})
	}
	return escapes
}

// tells makes the same call for what is not there, and says how the answers differ.
func (w *world) tells(watcher *trace.Watcher, a *attempt, command flex.Command, answer []byte) ([]string, error) {
	b := a.clone()
	there := ""
	for _, option := range []string{"image", "path", "device"} {
		if a.options[option] != "" {
			there, b.options[option] = a.options[option], a.absent
		}
	}
	if there == "" {
		return nil, nil
	}
	d := w.drivers[a.driver]
	r, err := watcher.Run(d.program, w.argv(d, b, command), w.environment(), patience, w.newGuard(d, b, command))
	if err != nil {
		return nil, err
	}
	other := bytes.ReplaceAll(r.Answer, []byte(filepath.Base(a.absent)), []byte(filepath.Base(there)))
	if bytes.Equal(other, answer) {
		return nil, nil
	}
	return []string{fmt.Sprintf("answer tells whether %s exists: %q, or else %q", there, cut(answer), cut(other))}, nil
}

func (w *world) newGuard(d *driver, a *attempt, command flex.Command) *guard {
	g := &guard{w: w, driver: d, command: command, programs: map[int]string{}, stubs: map[int]bool{}, unshared: map[int]bool{}, locks: w.mayBeLocked(d, a)}
	if command == flex.CommandMount {
		g.namespace, g.secrets = a.namespace, a.secrets
	}
	return g
}
