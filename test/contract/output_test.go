package contract

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// reply is what one execution of the driver by hand gave.
type reply struct {
	stdout, stderr string
	status         int
}

// execute runs the installed driver with stdout and stderr apart.
func (n *node) execute(args ...string) reply {
	n.t.Helper()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, n.executable(), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		n.t.Fatal(err)
	}
	return reply{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// executeOne is execute for a call that must keep the rules of the output.
func (n *node) executeOne(args ...string) answer {
	n.t.Helper()
	r := n.execute(args...)
	a, err := parseAnswer(r.stdout)
	if err != nil {
		n.t.Errorf("%.200q: %v", args, err)
	}
	if r.stderr != "" || r.status != 0 {
		n.t.Errorf("%.200q: exit status %d, stderr %q; want 0 and silence", args, r.status, r.stderr)
	}
	return a
}

const (
	goodOptions = `{"kubernetes.io/fsType":"","kubernetes.io/readwrite":"rw","kubernetes.io/pvOrVolumeName":"pv-1",` +
		`"medium":"memory","size":"1Mi"}`
	goodCSIOptions = `{"kubernetes.io/fsType":"ext4","kubernetes.io/readwrite":"rw","kubernetes.io/pvOrVolumeName":"pv-1",` +
		`"volumeID":"pv-1"}`
)

// goodCalls are the argument lists of the kubelet for a volume.
func goodCalls(goodOptions, dir string) map[string][]string {
	return map[string][]string{
		"init":          {},
		"getvolumename": {goodOptions},
		"attach":        {goodOptions, "node-1"},
		"isattached":    {goodOptions, "node-1"},
		"waitforattach": {"", goodOptions},
		"mountdevice":   {dir, "", goodOptions},
		"mount":         {dir, goodOptions},
		"unmount":       {dir},
		"unmountdevice": {dir},
		"detach":        {"pv-1", "node-1"},
		"expandfs":      {goodOptions, "", dir, "2097152", "1048576"},
		"expandvolume":  {goodOptions, dir, "2097152", "1048576"},
	}
}

// TestEveryCalloutAnswersOneObject whatever the arguments: the kubelet reads
// stdout and stderr together and logs what it cannot parse, and with another
// exit status than 0 it logs the arguments.
func TestEveryCalloutAnswersOneObject(t *testing.T) {
	options := map[string]string{memory().name: goodOptions, csiExt4().name: goodCSIOptions}
	for _, k := range []kind{memory(), csiExt4()} {
		t.Run(k.name, func(t *testing.T) { testEveryCallout(t, k.newNode(t, true), options[k.name]) })
	}
}

func testEveryCallout(t *testing.T, n *node, options string) {
	dir := filepath.Join(n.root, "pods/uid-a/volumes", driverDir, "pv-1")
	n.must(os.MkdirAll(dir, 0o750))
	for _, args := range [][]string{{}, {""}, {"frobnicate"}, {"frobnicate", goodOptions}, {"-x"}, {"Init"}} {
		if a := n.executeOne(args...); a.Status == "Success" {
			t.Errorf("%q: Success", args)
		}
	}
	for command, good := range goodCalls(options, dir) {
		t.Run(command, func(t *testing.T) {
			for _, bad := range badArguments(good) {
				a := n.executeOne(append([]string{command}, bad...)...)
				if a.Status == "Success" && command != "init" {
					t.Errorf("%s %.200q: Success", command, bad)
				}
			}
			if left := mountsBelow(t, n.root); len(left) > 0 {
				t.Errorf("mounted for bad arguments: %+v", left)
			}
		})
	}
	// In the order of a volume's life, so that each can succeed.
	for _, command := range []string{
		"init", "attach", "isattached", "waitforattach", "mountdevice", "unmountdevice", "mount", "unmount", "unmount", "detach",
	} {
		if a := n.executeOne(append([]string{command}, goodCalls(options, dir)[command]...)...); a.Status != "Success" {
			t.Errorf("%s: %s: %s", command, a.Status, a.Message)
		}
	}
}

// badArguments are variations of a good list, none of which may succeed.
func badArguments(good []string) [][]string {
	bad := [][]string{append(slices.Clone(good), "surplus")}
	if len(good) > 0 {
		bad = append(bad, good[:len(good)-1], []string{})
	}
	with := func(i int, s string) {
		list := slices.Clone(good)
		list[i] = s
		bad = append(bad, list)
	}
	for i, arg := range good {
		switch {
		case strings.HasPrefix(arg, "{"):
			for _, s := range []string{
				"", "{", "null", "[]", "17", `"text"`, `{"medium":7}`, `{"medium":null}`, goodOptions + goodOptions,
				"{\"medium\":\"\xff\"}", `{"medium":"memory","nonsense":"x"}x`, "{" + strings.Repeat(`"a":"b",`, 10000) + "}",
			} {
				with(i, s)
			}
		case strings.HasPrefix(arg, "/"):
			for _, s := range []string{
				"relative", arg + "/../../../../../../../..", arg + "\n", "/", "//", "/etc", "-o", arg + "/./x", "/proc/self/root", arg + "\x01",
			} {
				with(i, s)
			}
		case strings.HasSuffix(arg, "97152"):
			for _, s := range []string{"", "-1", "0", "1e9", "12x", "99999999999999999999"} {
				with(i, s)
			}
		}
	}
	return bad
}

// TestOptionsWithSpecialCharactersArriveUnchanged: Go's encoder, with which the
// kubelet writes the argument, escapes <, > and &.
func TestOptionsWithSpecialCharactersArriveUnchanged(t *testing.T) {
	for i, name := range []string{
		`<b>&amp; >x`, `"quoted" 'twice' \ back`, "ünïcode ☃", "a,b=c:d", "-dash", "$(x) `y` ; z", "%41 %s",
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			n := newNode(t, false)
			pod := newPod("a")
			v := n.newVolume(imageExt4(), "pv-1")
			v.pv.Spec.FlexVolume.Options["image"] = filepath.Join(n.images(), name)
			n.must(n.mount(v, pod))
			v.checkMounted(v.dir(pod))
			if !exists(filepath.Join(n.images(), name)) {
				t.Errorf("no image %q", name)
			}
			n.takeDown(v, pod)

			w := n.newVolume(directory(), "pv-2")
			w.pv.Spec.FlexVolume.Options["path"] = filepath.Join(n.shared(), "dir "+name)
			n.must(os.Mkdir(w.pv.Spec.FlexVolume.Options["path"], 0o755))
			n.must(n.mount(w, pod))
			n.writeFile(filepath.Join(w.dir(pod), "file"), name)
			n.takeDown(w, pod)
			n.checkFile(filepath.Join(n.shared(), "dir "+name, "file"), name)
		})
	}
}

// TestNewlineInAnOptionMountsNothingElse: mountinfo escapes it, configuration
// files of helpers and logs may not.
func TestNewlineInAnOptionMountsNothingElse(t *testing.T) {
	n := newNode(t, false)
	pod := newPod("a")
	v := n.newVolume(directory(), "pv-1")
	v.pv.Spec.FlexVolume.Options["path"] = filepath.Join(n.shared(), "pv-1\nx")
	if err := n.mount(v, pod); err == nil {
		t.Error("mounted a directory that does not exist")
	}
	if exists(v.dir(pod)) {
		t.Errorf("%s is still there", v.dir(pod))
	}
	v.checkNothingLeft()
}
