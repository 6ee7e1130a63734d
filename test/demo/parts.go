package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/demo/screen"
)

const mebi = 1 << 20

// prologue says what is shown, and what the lines leave out.
func (t *story) prologue() {
	version, err := t.node.run(t.node.flexdriver, "version")
	if err != nil {
		t.Fail("flexdriver version: %w", err)
		return
	}
	var uts unix.Utsname
	_ = unix.Uname(&uts) // only for people
	t.Line("\n %s  %s", t.Paint(screen.Bold, "flexdriver"), "a FlexVolume's whole life, with this program as the kubelet")
	words := strings.Fields(version.text)
	t.Line(" %s\n", t.Paint(screen.Dim, screen.Clip(strings.Join(words[:min(2, len(words))], " ")+" · Linux "+unix.ByteSliceToString(uts.Release[:]), t.Width-1)))
	t.Aside("Shortened: pod-a is <kubelet dir>/pods/pod-a/volumes/example.com~disk/data, global the device mount path, '{…}' the JSON that was last written out; its keys lack their kubernetes.io/.")
}

func (t *story) install() {
	t.Part("install")
	t.Scene("One file and its configuration, put in place in one step.")
	t.people(true, "install", "--image-root", t.node.images)
	names, err := files(t.node.plugins)
	if want := "example.com~disk/.flexdriver.json example.com~disk/disk"; err == nil && strings.Join(names, " ") != want {
		err = fmt.Errorf("there are: %s", strings.Join(names, ", "))
	}
	t.Verify(err, "files", "%s", strings.Join(names, "  "))
	t.Scene("The kubelet finds it and asks what it can do.")
	t.init(false)
}

// init shows the capabilities.
func (t *story) init(attach bool) {
	a := t.call("", "init")
	if t.Failed != nil {
		return
	}
	if a.Capabilities == nil || a.Capabilities.Attach != attach {
		t.Fail("the capability attach should be %t: %s", attach, a.text)
		return
	}
	var yes, no []string
	_, list, _ := strings.Cut(strings.NewReplacer(`"`, "", "}", "").Replace(a.text), "capabilities:{")
	for item := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(item, ":")
		if value == "true" {
			yes = append(yes, name)
		} else {
			no = append(no, name)
		}
	}
	without := ""
	if t.Width == screen.Widest {
		without = t.Paint(screen.Dim, " and not "+strings.Join(no, ", "))
	}
	t.Verify(nil, "capabilities", "%s%s", strings.Join(yes, ", "), without)
}

// withoutAttach is the default: the kubelet calls mount and unmount.
func (t *story) withoutAttach() {
	t.Part("attach: false — the kubelet calls mount and unmount, and that is all")
	disk := volume{image: "ext4.img", size: "64Mi", fsType: "ext4"}
	a, b, c, d := t.pod("pod-a"), t.pod("pod-b"), t.pod("pod-c"), t.pod("pod-d")

	t.Scene("Pod a starts. Its disk does not exist yet: it is created, formatted and mounted.")
	t.mount(a, disk)
	t.shows(a, "ext4", "rw")
	t.sparse(disk.image)
	t.writes(a, "hello.txt", "hello from pod a")
	t.Scene("Pod a ends. The disk is detached with the last pod.")
	t.unmount(a)
	t.released()
	t.Scene("Pod b gets the volume, and finds what pod a has written.")
	t.mountAgain(b, disk)
	t.reads(b, "hello.txt", "hello from pod a")

	t.Scene("Pod c shares it. Pod d may only read.")
	readOnly := disk
	readOnly.readOnly = true
	t.mountAgain(c, disk)
	t.mountAgain(d, readOnly)
	t.shows(b, "ext4", "rw")
	t.shows(c, "ext4", "rw")
	t.shows(d, "ext4", "ro")
	t.oneLoop()
	t.writes(c, "shared.txt", "hello from pod c")
	t.reads(d, "shared.txt", "hello from pod c")
	t.cannotWrite(d, "mine.txt")

	t.Scene("The kubelet asks twice: what is done is done. What would be a mistake is refused.")
	t.mountAgain(b, disk)
	t.shows(b, "ext4", "rw")
	other := volume{image: "other.img", size: "64Mi"}
	t.refused("not this volume", b+" "+other.String(), "mount", b, t.argument(other))
	t.unmount(d)
	t.unmount(c)
	t.unmount(b)
	wrong := volume{image: "ext4.img", fsType: "xfs"}
	t.refused("the disk holds ext4, not xfs", a+" "+wrong.String(), "mount", a, t.argument(wrong))
	t.growExt4(disk, a)
	t.growXFS(b)
}

// sparse shows how little of the disk an image takes.
func (t *story) sparse(image string) {
	length, blocks, err := taken(t.node.imagePath(volume{image: image}))
	if err == nil && blocks > length/2 {
		err = fmt.Errorf("%s takes %s of the disk", image, mib(blocks))
	}
	t.Verify(err, "created", "%s, %s long, %s on the disk", image, mib(length), mib(blocks))
}

// expand calls expandfs as the kubelet does with attach:false: no device, and
// the pod's directory.
func (t *story) expand(dir string, v volume, size, old int64) {
	newSize, oldSize := strconv.FormatInt(size, 10), strconv.FormatInt(old, 10)
	t.call(fmt.Sprintf("'{…}' '' %s %s %s", dir, newSize, oldSize), "expandfs", t.argument(v), "", dir, newSize, oldSize)
}

func (t *story) growExt4(disk volume, dir string) {
	const before, after = 64 * mebi, 256 * mebi
	t.Scene("The claim asks for 256 MiB: image, loop device and filesystem grow in one call.")
	t.mount(dir, disk)
	t.size(dir, before)
	if !mayGrowMounted() {
		t.note("(This process lacks CAP_SYS_RESOURCE, without which a mounted ext4 does not grow: between two pods, then.)")
		t.unmount(dir)
		t.expand(dir, disk, after, before)
		t.mountAgain(dir, disk)
	} else {
		t.expand(dir, disk, after, before)
	}
	t.size(dir, after)
	t.reads(dir, "hello.txt", "hello from pod a")
	t.unmount(dir)
	t.released()
}

func (t *story) growXFS(dir string) {
	const before, after = 300 * mebi, 600 * mebi
	t.Scene("The same with xfs, which grows while a pod uses it.")
	disk := volume{image: "xfs.img", size: "300Mi", fsType: "xfs"}
	t.mount(dir, disk)
	t.shows(dir, "xfs", "rw")
	t.size(dir, before)
	t.expand(dir, disk, after, before)
	t.size(dir, after)
	t.unmount(dir)
	t.released()
}

// withAttach is the life of a volume with kube-controller-manager in it.
func (t *story) withAttach() {
	t.Part("attach: true — kube-controller-manager and the kubelet share the work")
	t.Scene("The same file, told to attach. A running kubelet notices, and runs init once.")
	t.people(true, "install", "--image-root", t.node.images, "--attach")
	t.init(true)
	disk := volume{image: "xfs2.img", size: "512Mi", fsType: "xfs"}
	argument := t.argument(disk)

	t.Scene("kube-controller-manager attaches the volume to node-1, and to no other node.")
	t.call(disk.String()+" node-1", "attach", argument, "node-1")
	t.call("'{…}' node-1", "isattached", argument, "node-1")
	t.refused("attached to node node-1", "'{…}' node-2", "attach", argument, "node-2")

	t.Scene("The kubelet of node-1 waits for the device, and mounts it for each pod. An image is left alone until mount tells the namespace to which it belongs.")
	a, b, global := t.pod("pod-a"), t.pod("pod-b"), t.global()
	t.setUpDevice(global, disk)
	t.mountAgain(a, disk)
	t.mountAgain(b, disk)
	t.shows(a, "xfs", "rw")
	t.shows(b, "xfs", "rw")
	t.oneLoop()
	t.writes(a, "hello.txt", "hello from node-1")
	t.reads(b, "hello.txt", "hello from node-1")

	t.Scene("It grows while both pods use it.")
	t.size(b, 512*mebi)
	t.expand(b, disk, 1024*mebi, 512*mebi)
	t.size(a, 1024*mebi)

	t.Scene("And all the way back; now node-2 may have it.")
	t.unmount(a)
	t.unmount(b)
	t.call("global", "unmountdevice", global)
	t.unseen(global)
	t.released()
	t.call("data node-1", "detach", "data", "node-1")
	t.call("'{…}' node-2", "attach", argument, "node-2")
	t.call("data node-2", "detach", "data", "node-2")
	t.ext4WithAttach(a, global)
}

// setUpDevice makes the calls before the first mount.
func (t *story) setUpDevice(global string, disk volume) {
	device, argument := t.node.imagePath(disk), t.argument(disk)
	t.call(disk.image+" '{…}'", "waitforattach", device, argument)
	t.call("global "+disk.image+" '{…}'", "mountdevice", global, device, argument)
}

// ext4WithAttach mounts what was written without attach.
func (t *story) ext4WithAttach(dir, global string) {
	t.Scene("The same with ext4: the disk of part 2, with what is on it.")
	disk := volume{image: "ext4.img", fsType: "ext4"}
	t.call(disk.String()+" node-1", "attach", t.argument(disk), "node-1")
	t.setUpDevice(global, disk)
	t.mountAgain(dir, disk)
	t.shows(dir, "ext4", "rw")
	t.reads(dir, "hello.txt", "hello from pod a")
	t.unmount(dir)
	t.call("global", "unmountdevice", global)
	t.released()
	t.call("data node-1", "detach", "data", "node-1")
}

func (t *story) uninstall() {
	t.Part("uninstall")
	a := t.pod("pod-a")
	t.Scene("Not while a pod needs it.")
	t.mount(a, volume{image: "ext4.img"})
	t.people(false, "uninstall")
	t.unmount(a)
	t.Scene("Then without a trace: a directory that is left would fill the kubelet's log.")
	t.people(true, "uninstall")
	names, err := os.ReadDir(t.node.plugins)
	if err == nil && len(names) > 0 {
		err = fmt.Errorf("it holds %v", names)
	}
	t.Verify(err, "empty", "%s", t.node.short(t.node.plugins))
}

// nothingLeft looks at the whole machine for what is of this story.
func (t *story) nothingLeft() {
	t.Part("what is left")
	mounts, err := t.node.mounts(t.node.dir)
	mounts = slices.DeleteFunc(mounts, func(s seen) bool { return s.dir == t.node.images }) // it is the demo's own
	if err == nil && len(mounts) > 0 {
		err = fmt.Errorf("%v", mounts)
	}
	t.Verify(err, "mounts", "none")
	t.Verify(t.node.noLoops(), "loop devices", "none")
	names, err := files(t.node.kubelet)
	if want := "plugins/kubernetes.io/flexvolume/.flexdriver.lock"; err == nil && strings.Join(names, " ") != want {
		err = fmt.Errorf("there are: %s", strings.Join(names, ", "))
	}
	t.Verify(err, "files", "one, empty, which callouts lock: %s", filepath.Base(strings.Join(names, " ")))
	images, err := files(filepath.Join(t.node.images, namespace))
	t.Verify(err, "data", "%s  %s", strings.Join(images, "  "), t.Paint(screen.Dim, "the volumes themselves, and yours"))
}

// epilogue is one line, and whether all went well.
func (t *story) epilogue() bool {
	if t.Failed != nil {
		t.Line("\n %s %s\n", t.Paint(screen.Red, "✗"), t.Paint(screen.Bold, "stopped here: this is not as it should be"))
		return false
	}
	t.Line("\n %s %s %s\n", t.Paint(screen.Green, "✓"), t.Paint(screen.Bold, fmt.Sprintf("%d calls, %d checks, nothing left.", t.calls, t.Seen)),
		t.Paint(screen.Dim, fmt.Sprintf("All calls together took %.1f s.", t.inCalls.Seconds())))
	return true
}
