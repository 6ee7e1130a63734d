package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// What --dry-run says, for a table of calls, as a golden file; and that it does
// nothing of it.
func TestPlan(t *testing.T) {
	testenv.Need(t, "ext4", "xfs")
	w := newWorld(t)
	w.b.ApplyFSGroup, w.b.AttachLocks = true, statedir.AttachLocks("/driver")
	shared := w.shared()
	w.image("") // its directory
	group := int64(4711)
	ext4, swap, empty := w.disk(namespace+"/ext4.img", 16<<20), w.disk("swap.img", 16<<20), w.disk("empty.img", 16<<20)
	w.run("mkfs.ext4", "-q", ext4)
	w.run("mkswap", swap)
	w.write(w.image("there.img"), strings.Repeat("\x00", 1<<20))
	pod, mounted, global := w.pod("a"), w.pod("b"), w.device()
	w.mount(mounted, options("medium", "memory", "size", "1Mi"))
	defer w.unmount(mounted)

	var b strings.Builder
	plan := func(title string, c *flex.Call) {
		t.Helper()
		steps, err := w.b.Plan(t.Context(), c)
		fmt.Fprintf(&b, "%s %s\n", c.Command, title)
		for _, step := range steps {
			fmt.Fprintf(&b, "\t%s\n", step)
		}
		if err != nil {
			fmt.Fprintf(&b, "\tfails (%s): %v\n", flex.CodeOf(err), err)
		}
	}
	new := options("image", w.image("new.img"), "size", "1Gi", "fsType", "xfs", "mountOptions", "noatime,discard")
	new.FSGroup = &group
	readOnly := options("image", w.image("there.img"), "ro", "true")
	for _, v := range []struct {
		title string
		o     flex.Options
	}{
		{"a new image", new},
		{"an image that is there", options("image", w.image("there.img"))},
		{"an image that is there, read-only", readOnly},
		{"an image that is attached", options("image", w.image("ext4.img"))},
		{"an image that is missing", options("image", w.image("none.img"))},
		{"an empty disk", options("device", empty)},
		{"a disk with ext4", options("device", ext4)},
		{"a disk with ext4, as xfs", options("device", ext4, "fsType", "xfs")},
		{"a disk with ext4, read-only", options("device", ext4, "ro", "true")},
		{"a disk with swap", options("device", swap)},
		{"a disk that is missing", options("device", w.path("none"))},
		{"a share", options("source", "server:/export", "fsType", "nfs", "mountOptions", "vers=4.2")},
		{"a directory", options("path", shared, "mountOptions", "nosuid")},
		{"memory", options("medium", "memory", "size", "64Mi")},
		{"bad options", options("medium", "disk")},
	} {
		plan(v.title, call(flex.CommandMount, pod, v.o))
	}
	plan("where something is mounted", call(flex.CommandMount, mounted, options("medium", "memory")))
	plan("elsewhere", call(flex.CommandMount, "/mnt", options("medium", "memory")))
	plan("a disk", call(flex.CommandMountDevice, global, options("device", ext4)))
	plan("a share", call(flex.CommandMountDevice, global, options("source", "server:/export", "fsType", "nfs")))
	for _, command := range []flex.Command{flex.CommandUnmount, flex.CommandUnmountDevice} {
		plan("what is mounted", call(command, mounted, flex.Options{}))
		plan("what is not mounted", call(command, pod, flex.Options{}))
		plan("what is missing", call(command, w.kubelet.Root+"/pods/none/volumes/example.com~disk/pv", flex.Options{}))
	}
	plan("a volume", call(flex.CommandDetach, "", flex.Options{}))
	plan("a disk", call(flex.CommandAttach, "", options("device", ext4)))
	plan("a disk", call(flex.CommandIsAttached, "", options("device", ext4)))
	plan("a new image", call(flex.CommandWaitForAttach, "", new))
	plan("an image", call(flex.CommandWaitForAttach, "", options("image", w.image("there.img"))))
	plan("a disk", call(flex.CommandWaitForAttach, "", options("device", ext4)))
	plan("a disk that is missing", call(flex.CommandWaitForAttach, "", options("device", w.path("none"))))
	plan("a share", call(flex.CommandWaitForAttach, "", options("source", "server:/export", "fsType", "nfs")))
	for _, v := range []struct {
		title string
		o     flex.Options
		size  int64
	}{
		{"an image", options("image", w.image("there.img")), 2 << 20},
		{"a disk", options("device", ext4), 2 << 20},
		{"a share", options("source", "server:/export", "fsType", "nfs"), 2 << 20},
		{"memory", options("medium", "memory"), 2 << 20},
		{"to nothing", options("medium", "memory"), 0},
		{"read-only", readOnly, 2 << 20},
	} {
		c := call(flex.CommandExpandFS, pod, v.o)
		c.NewSize = v.size
		plan(v.title, c)
	}

	// Paths and numbers of this run.
	text := strings.NewReplacer(w.dir, "$DIR", w.kubelet.Root, "$KUBELET").Replace(b.String())
	for device, name := range map[string]string{ext4: "$EXT4", swap: "$SWAP", empty: "$EMPTY"} {
		// Not /dev/loop41, if this is /dev/loop4.
		text = regexp.MustCompile(regexp.QuoteMeta(device)+`\b`).ReplaceAllLiteralString(text, name)
	}
	golden(t, "plan.golden", regexp.MustCompile(`/dev/loop\d+`).ReplaceAllString(text, "/dev/loopN"))

	if _, err := os.Stat(w.image("new.img")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a plan made an image: %v", err)
	}
	w.mounted(pod, false)
	w.mounted(global, false)
}
