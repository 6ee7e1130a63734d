package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// scriptCommands are what scripts have besides testscript's own commands;
// testdata/script/README.md lists them.
func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"answer":           scriptAnswer,
		"await":            scriptAwait,
		"bridge":           scriptBridgeCmd,
		"deadfuse":         scriptDeadFUSE,
		"fill":             scriptFill,
		"helper":           scriptHelper,
		"life":             scriptLife,
		"loops":            scriptLoops,
		"mounted":          scriptMounted,
		"options":          scriptOptions,
		"space":            scriptSpace,
		"terminal":         scriptTerminal,
		"pending-unmounts": scriptPendingUnmounts,
	}
}

// scriptOptions sets a variable to the JSON argument, as the kubelet writes it for
// mount. The pod's namespace is $NAMESPACE; $WORK has its images.
func scriptOptions(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: options VARIABLE [fsType=TYPE] [ro] [namespace=NAME] [pod=NAME] [fsGroup=GID] [secret:KEY=VALUE] [OPTION=VALUE]...")
	}
	o := flex.Options{VolumeName: "data", PodNamespace: ts.Getenv("NAMESPACE"), User: map[string]string{}, Secrets: map[string]flex.Secret{}}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		secret, isSecret := strings.CutPrefix(key, "secret:")
		switch {
		case key == "ro":
			o.ReadOnly = true
		case key == "namespace":
			o.PodNamespace = value
		case key == "pod":
			o.PodName = value
		case key == "fsType":
			o.FSType = value
		case key == "fsGroup":
			gid, err := strconv.ParseInt(value, 10, 64)
			ts.Check(err)
			o.FSGroup = &gid
		case isSecret:
			o.Secrets[secret] = flex.NewSecret([]byte(value))
		default:
			o.User[key] = value
		}
	}
	text, err := o.MarshalArgument()
	ts.Check(err)
	ts.Setenv(args[0], text)
}

// scriptHelper puts a file of the script into /sbin, as a program that mount(8)
// calls. Its environment is closed, so $WORK is replaced in the text.
func scriptHelper(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: helper FILE")
	}
	text := strings.ReplaceAll(ts.ReadFile(args[0]), "$WORK", ts.Getenv("WORK"))
	ts.Check(os.WriteFile(filepath.Join("/sbin", filepath.Base(args[0])), []byte(text), 0o755))
}

// scriptAnswer wants exactly one JSON object on stdout, with exactly the
// fields that are given: "answer Success" is {"status":"Success"}.
func scriptAnswer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: answer STATUS [MESSAGE-REGEXP] [device=DEVICE] [attached=BOOL]...")
	}
	got := decodeAnswer(ts, ts.ReadFile("stdout"))
	want := flex.DriverStatus{Status: flex.Status(args[0])}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "device":
			want.Device = value
		case "attached":
			attached, err := strconv.ParseBool(value)
			ts.Check(err)
			want.Attached = &attached
		default:
			pattern, err := regexp.Compile(arg)
			ts.Check(err)
			if !pattern.MatchString(got.Message) {
				ts.Fatalf("the message is %q, which does not match %q", got.Message, arg)
			}
			want.Message = got.Message
		}
	}
	if wanted := string(want.Encode()); wanted != ts.ReadFile("stdout") {
		ts.Fatalf("the answer is %swhich should be %s", ts.ReadFile("stdout"), wanted)
	}
}

func decodeAnswer(ts *testscript.TestScript, text string) (status flex.DriverStatus) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&status); err != nil {
		ts.Fatalf("stdout is no answer: %v: %q", err, text)
	}
	if !bytes.Equal([]byte(text), status.Encode()) {
		ts.Fatalf("stdout is not one answer and nothing else: %q", text)
	}
	return status
}

// scriptMounted looks for a mount at a directory: the topmost, and how many.
func scriptMounted(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 || neg && len(args) > 1 {
		ts.Fatalf("usage: mounted DIR [TYPE|any [count=N] [OPTION | !OPTION]...] or ! mounted DIR")
	}
	dir := ts.MkAbs(args[0])
	infos, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != dir, false })
	ts.Check(err)
	switch {
	case neg && len(infos) > 0:
		ts.Fatalf("%s (%s) is mounted on %s", infos[0].Source, infos[0].FSType, dir)
	case neg:
		return
	case len(infos) == 0:
		ts.Fatalf("nothing is mounted on %s", dir)
	}
	top, count := infos[len(infos)-1], "count=1"
	options := strings.Split(top.Options, ",")
	if len(args) > 1 && args[1] != "any" && args[1] != top.FSType {
		ts.Fatalf("%s on %s is %s, not %s", top.Source, dir, top.FSType, args[1])
	}
	for _, arg := range args[min(2, len(args)):] {
		without, isWithout := strings.CutPrefix(arg, "!")
		switch {
		case strings.HasPrefix(arg, "count="):
			count = arg
		case slices.Contains(options, without) == isWithout:
			ts.Fatalf("%s on %s has the options %s, not as wanted: %s", top.Source, dir, top.Options, arg)
		}
	}
	if got := fmt.Sprintf("count=%d", len(infos)); got != count {
		ts.Fatalf("at %s are mounts of %s, not %s", dir, got, count)
	}
}

// scriptLoops counts the loop devices on a file. The kernel lets go of one some
// time after its last user.
func scriptLoops(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: loops COUNT FILE")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if got = countLoops(ts.MkAbs(args[1])); got == want {
			return
		}
	}
	ts.Fatalf("%d loop devices have %s, not %d", got, args[1], want)
}

func countLoops(file string) (n int) {
	devices, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, device := range devices {
		if backing, err := os.ReadFile(device); err == nil && strings.TrimSpace(string(backing)) == file {
			n++
		}
	}
	return n
}

// scriptSpace bounds the size of the filesystem at a directory.
func scriptSpace(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: space DIR AT-LEAST-MIB AT-MOST-MIB")
	}
	least, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	most, err := strconv.ParseInt(args[2], 10, 64)
	ts.Check(err)
	var st unix.Statfs_t
	ts.Check(unix.Statfs(ts.MkAbs(args[0]), &st))
	if mib := int64(st.Blocks) * st.Bsize >> 20; mib < least || mib > most {
		ts.Fatalf("the filesystem at %s has %d MiB, not %d to %d", args[0], mib, least, most)
	}
}

// scriptFill copies a file and puts the values of variables into it.
func scriptFill(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: fill FROM TO")
	}
	text := os.Expand(ts.ReadFile(args[0]), ts.Getenv)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o644))
}

// scriptDeadFUSE leaves at a directory what is left when the program behind a
// FUSE mount dies: every look at it is ENOTCONN.
func scriptDeadFUSE(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: deadfuse DIR")
	}
	dir := ts.MkAbs(args[0])
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	ts.Check(err)
	data := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd())
	ts.Check(unix.Mount("dead", dir, "fuse.dead", 0, data))
	ts.Check(fuse.Close())
	if _, err := os.Stat(dir); err == nil {
		ts.Fatalf("%s is not dead", dir)
	}
}
