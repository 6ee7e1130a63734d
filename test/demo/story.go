package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/demo/screen"
)

// A story is told of a node.
type story struct {
	*screen.Story
	node *node

	calls   int // of the driver
	inCalls time.Duration
}

func (t *story) note(text string) {
	if t.Failed == nil {
		t.Aside(text)
	}
}

// call makes a callout that should be answered Success.
func (t *story) call(shown string, args ...string) answer {
	return t.callFor(flex.StatusSuccess, shown, args...)
}

// refused makes a callout that should be a Failure, and shows its reason.
func (t *story) refused(because, shown string, args ...string) {
	a := t.callFor(flex.StatusFailure, shown, args...)
	if t.Failed != nil {
		return
	}
	t.Aside(t.node.short(a.Message))
	if !strings.Contains(a.Message, because) {
		t.Fail("the reason should be that %s", because)
	}
}

func (t *story) callFor(want flex.Status, shown string, args ...string) answer {
	if t.Failed != nil {
		return answer{}
	}
	a, err := t.node.call(args...)
	t.count(a)
	st := screen.Green
	if a.Status != flex.StatusSuccess {
		st = screen.Yellow
	}
	if err != nil || a.Status != want {
		st = screen.Red
	}
	t.Screen.Call("disk "+args[0], t.node.short(shown), string(a.Status), st, a.took)
	switch {
	case err != nil:
		t.Fail("disk %s: %w", args[0], err)
	case a.Status != want:
		t.Fail("the answer should be %s, and is %s", want, a.text)
	case a.Device != "" || a.Attached != nil:
		t.Aside(t.node.short(a.text))
	}
	return a
}

func (t *story) count(a answer) {
	t.calls++
	t.inCalls += a.took
}

// people runs flexdriver as a person does, and shows what it says.
func (t *story) people(ok bool, command string, args ...string) {
	if t.Failed != nil {
		return
	}
	a, err := t.node.run(t.node.flexdriver, append([]string{command, "--driver", driverName, "--volume-plugin-dir", t.node.plugins}, args...)...)
	t.count(a)
	status, st := "done", screen.Green
	if err != nil {
		status, st = "refused", screen.Yellow
	}
	if (err == nil) != ok {
		status, st = strings.Replace(status, "refused", "failed", 1), screen.Red
	}
	shown := "--driver " + driverName + " --volume-plugin-dir …"
	if len(args) > 0 {
		shown = t.node.short(strings.Join(args, " ")) + " --driver " + driverName + " …"
	}
	t.Screen.Call("flexdriver "+command, shown, status, st, a.took)
	for l := range strings.Lines(a.text) {
		t.Aside(t.node.short(strings.TrimSpace(l)))
	}
	if (err == nil) != ok {
		t.Fail("flexdriver %s should not have ended with: %v", command, err)
	}
}

// pod is the directory of the volume in a pod of that name.
func (t *story) pod(name string) string {
	dir, err := t.node.podDir(name)
	if err != nil {
		t.Fail("make the directory of %s: %w", name, err)
	}
	return dir
}

// global is the device mount path.
func (t *story) global() string {
	dir, err := t.node.globalDir()
	if err != nil {
		t.Fail("make the device mount path: %w", err)
	}
	return dir
}

func (t *story) argument(v volume) string {
	text, err := t.node.argument(v)
	if err != nil {
		t.Fail("encode the options: %w", err)
	}
	return text
}

func (t *story) mount(dir string, v volume) {
	t.call(dir+" "+v.String(), "mount", dir, t.argument(v))
}

// mountAgain mounts what the line before has spelled out.
func (t *story) mountAgain(dir string, v volume) {
	shown := "'{…}'"
	if v.readOnly {
		shown = `'{…,"readwrite":"ro"}'`
	}
	t.call(dir+" "+shown, "mount", dir, t.argument(v))
}

func (t *story) unmount(dir string) {
	t.call(dir, "unmount", dir)
	t.unseen(dir)
}

// shows wants one mount at dir, and shows what mountinfo says of it.
func (t *story) shows(dir, fsType, access string) {
	if t.Failed != nil {
		return
	}
	s, err := t.node.at(dir)
	if err == nil && (s.fsType != fsType || s.access != access || s.count != 1) {
		err = fmt.Errorf("want one %s, %s, at %s, but there is %s", fsType, access, dir, s)
	}
	source := s.device
	if s.image != "" {
		source += " = " + s.image
	}
	t.Verify(err, "mounted", "%-7s %-5s %s   %s", t.node.short(dir), s.fsType, s.access, t.Paint(screen.Dim, source))
}

func (t *story) unseen(dir string) {
	if t.Failed != nil {
		return
	}
	s, err := t.node.at(dir)
	if err == nil && s.count != 0 {
		err = fmt.Errorf("%s is still mounted at %s", s.device, dir)
	}
	if err != nil {
		t.Fail("unmounted: %w", err)
		return
	}
	t.Seen++ // not shown: the answer says it already
}

// released wants no loop device to be left.
func (t *story) released() {
	if t.Failed == nil {
		t.Verify(t.node.noLoops(), "released", "the loop device went with the last mount")
	}
}

// oneLoop wants all mounts to share one loop device.
func (t *story) oneLoop() {
	if t.Failed != nil {
		return
	}
	var err error
	devices := t.node.loops()
	if len(devices) != 1 {
		err = fmt.Errorf("want one, there are %d: %s", len(devices), strings.Join(devices, ", "))
		devices = []string{""}
	}
	t.Verify(err, "shared", "one filesystem, one loop device: %s", devices[0])
}

func (t *story) writes(dir, file, text string) {
	if t.Failed != nil {
		return
	}
	err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)
	t.Verify(err, "wrote", "%s/%s  %s", t.node.short(dir), file, t.Paint(screen.Dim, fmt.Sprintf("%q", text)))
}

func (t *story) reads(dir, file, text string) {
	if t.Failed != nil {
		return
	}
	got, err := os.ReadFile(filepath.Join(dir, file))
	if err == nil && !bytes.Equal(got, []byte(text)) {
		err = fmt.Errorf("%s holds %q, not %q", file, got, text)
	}
	t.Verify(err, "read", "%s/%s  %s", t.node.short(dir), file, t.Paint(screen.Dim, fmt.Sprintf("%q", got)))
}

// cannotWrite wants the kernel to refuse.
func (t *story) cannotWrite(dir, file string) {
	if t.Failed != nil {
		return
	}
	err := os.WriteFile(filepath.Join(dir, file), nil, 0o644)
	if err == nil {
		t.Fail("%s/%s could be written", dir, file)
		return
	}
	t.Verify(nil, "not written", "%s/%s  %s", t.node.short(dir), file, t.Paint(screen.Dim, t.node.short(errors.Unwrap(err).Error())))
}

// size wants the filesystem at dir to have nearly so many bytes, and returns
// how many.
func (t *story) size(dir string, want int64) {
	if t.Failed != nil {
		return
	}
	got, err := room(dir)
	if err == nil && (got > want || got < want*3/4) {
		err = fmt.Errorf("the filesystem at %s has %s, of a disk of %s", dir, mib(got), mib(want))
	}
	t.Verify(err, "size", "%s  %s %s", t.node.short(dir), mib(got), t.Paint(screen.Dim, "of a disk of "+mib(want)))
}
