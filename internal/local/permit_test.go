package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// everyCall makes a call with the options as each callout that looks at a
// volume on the node, and as its dry run, and checks that all are refused.
func (w *world) everyCall(dir string, o flex.Options, code flex.Code, texts ...string) {
	w.Helper()
	for _, command := range []flex.Command{flex.CommandMount, flex.CommandMountDevice, flex.CommandWaitForAttach, flex.CommandExpandFS, flex.CommandExpandVolume} {
		c := call(command, dir, o)
		c.NewSize = 64 << 20
		_, planErr := w.b.Plan(w.Context(), c)
		w.refused(planErr, code, texts...)
		if command == flex.CommandWaitForAttach {
			_, err := w.answerDevice(w.Context(), c)
			w.refused(err, code, texts...)
			continue
		}
		w.refused(w.do(c), code, texts...)
	}
	w.mounted(dir, false)
}

// Without a configuration nothing of the node is opened (security.md, 2 and 3).
func TestClosedByDefault(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	device := w.disk("disk", 32<<20)
	w.run("mkfs.ext4", "-q", device)
	w.b = Backend{}
	dir := w.pod("a")
	for _, tt := range []struct {
		o     flex.Options
		texts []string
	}{
		{options("image", w.image("new.img"), "size", "32Mi"), []string{"no volumes with image", "imageRoots", "--image-root"}},
		{options("device", device), []string{"no volumes with device", "deviceRoots", "--device-root"}},
		{options("device", "UUID=x"), []string{"no volumes with device", "deviceRoots"}},
		{options("path", "/etc"), []string{"no volumes with path", "directoryRoots", "--directory-root"}},
		{options("source", "server:/export", "fsType", "nfs"), []string{"no volumes with source", "sourceTypes", "--source-type nfs"}},
		{options("source", "server:/x", "fsType", "fuse.sshfs"), []string{"no volumes with source", "--source-type fuse.sshfs"}},
	} {
		w.everyCall(dir, tt.o, flex.CodePermissionDenied, tt.texts...)
	}
	w.refused(w.do(call(flex.CommandMount, dir, options("medium", "memory"))), flex.CodePermissionDenied, "maxSize", "--max-size")
	if _, err := os.Stat(w.image("new.img")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an image was made: %v", err)
	}
}

// attach took a lock for whatever the options named, and isattached renewed it: a pod
// with an inline volume kept a disk from all other nodes (security.md, F2).
func TestAttachNeedsPermission(t *testing.T) {
	w := newWorld(t)
	locks := t.TempDir()
	w.b = Backend{AttachLocks: statedir.AttachLocks(locks), ImageRoots: []string{"/images"}, DeviceRoots: []string{"/dev/disk/by-id"}}
	for _, o := range []flex.Options{
		options("image", "/elsewhere/team-a/disk.img"),
		options("image", "/images/disk.img"),
		options("device", "/dev/disk/by-path/0815"),
	} {
		attach, isAttached := call(flex.CommandAttach, "", o), call(flex.CommandIsAttached, "", o)
		_, err := w.answerDevice(t.Context(), attach)
		w.refused(err, flex.CodePermissionDenied)
		err = w.do(isAttached)
		w.refused(err, flex.CodePermissionDenied)
		for _, c := range []*flex.Call{attach, isAttached} {
			_, err := w.b.Plan(t.Context(), c)
			w.refused(err, flex.CodePermissionDenied)
		}
	}
	if files, err := os.ReadDir(locks); err != nil || len(files) > 0 {
		t.Errorf("there are locks: %v, %v", files, err)
	}
	if _, err := w.answerDevice(t.Context(), call(flex.CommandAttach, "", options("device", "/dev/disk/by-id/x"))); err != nil {
		t.Error(err)
	}
}

// waitforattach does not get the pod's namespace, and told whether an image of another
// one exists (security.md, F9).
func TestWaitForAttachTellsNothingOfImages(t *testing.T) {
	w := newWorld(t)
	w.write(w.image("there.img"), "x")
	for _, name := range []string{"there.img", "not.img"} {
		o := options("image", w.image(name))
		o.PodNamespace = ""
		c := call(flex.CommandWaitForAttach, "", o)
		if got, err := w.answerDevice(t.Context(), c); got != w.image(name) || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if _, err := w.b.Plan(t.Context(), c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A type of filesystem is allowed by its full name only.
func TestSourceTypesAreExact(t *testing.T) {
	w := newWorld(t)
	w.b.SourceTypes = []string{"nfs", "fuse.sshfs"}
	for fsType, source := range map[string]string{"nfs4": "server:/x", "fuse.bindfs": "x", "fuse.sshfs2": "server:x"} {
		w.everyCall(w.pod("a"), options("source", source, "fsType", fsType), flex.CodePermissionDenied, "fsType "+fsType, "none of the sourceTypes", "nfs, fuse.sshfs")
	}
}

// An image of one namespace is out of reach of all others, by any name.
func TestImageOfAnotherNamespace(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	o := options("image", w.image("disk.img"), "size", "32Mi")
	w.mount(w.pod("own"), o)
	before, dir := w.read(w.image("disk.img")), w.pod("other")

	thief := o
	thief.PodNamespace = "team-b"
	w.everyCall(dir, thief, flex.CodePermissionDenied, "it is of namespace team-a", "the pod is in namespace team-b", w.path("team-b/"))

	thief = options("image", w.path("team-b/link.img"))
	thief.PodNamespace = "team-b"
	if err := os.MkdirAll(w.path("team-b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for title, link := range map[string]func() error{
		"symbolic link": func() error { return os.Symlink(w.image("disk.img"), w.path("team-b/link.img")) },
		"hard link":     func() error { return os.Link(w.image("disk.img"), w.path("team-b/link.img")) },
	} {
		if err := link(); err != nil {
			t.Fatal(err)
		}
		w.refused(w.do(call(flex.CommandMount, dir, thief)), flex.CodeInvalidArgument, title)
		_, err := w.b.Plan(t.Context(), call(flex.CommandMount, dir, thief))
		w.refused(err, flex.CodeInvalidArgument, title)
		if err := os.Remove(w.path("team-b/link.img")); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("team-a", w.path("team-c")); err != nil {
		t.Fatal(err)
	}
	thief = options("image", w.path("team-c/disk.img"))
	thief.PodNamespace = "team-c"
	w.refused(w.do(call(flex.CommandMount, dir, thief)), flex.CodeInvalidArgument, "symbolic link")

	// Its loop device is no disk of the node.
	source := strings.TrimSpace(w.run("losetup", "--noheadings", "--output", "NAME", "--associated", w.image("disk.img")))
	thief = options("device", source)
	thief.PodNamespace = "team-b"
	w.refused(w.do(call(flex.CommandMount, dir, thief)), flex.CodeInvalidArgument, "loop device", "with the option image")
	w.mounted(dir, false)

	w.unmount(w.pod("own"))
	if w.read(w.image("disk.img"))[:1024] != before[:1024] {
		t.Error("the image has changed")
	}
}

// A volume without fsType takes what is on the disk, if that is one of the
// filesystems that a volume may ask for: each other one is code of the kernel
// that reads what a pod's author may have written.
func TestOtherFilesystemIsNotMounted(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	o := options("image", w.image("disk.img"), "size", "32Mi")
	w.mount(w.pod("a"), o)
	w.unmount(w.pod("a"))
	w.run("mkfs.ext2", "-q", "-F", w.image("disk.img"))
	w.refused(w.do(call(flex.CommandMount, w.pod("a"), o)), flex.CodeFailedPrecondition, "the disk holds ext2, and only ext4, xfs, btrfs, ext3 are mounted")
	w.mounted(w.pod("a"), false)
}

// The author of a pod chooses the label of an image. It is not taken for the disk
// that another volume names by its label.
func TestLabelOfImage(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	label := fmt.Sprintf("flex-%d", os.Getpid())
	o := options("image", w.image("disk.img"), "size", "32Mi")
	w.mount(w.pod("a"), o)
	w.unmount(w.pod("a"))
	w.run("tune2fs", "-L", label, w.image("disk.img"))
	w.mount(w.pod("a"), o)
	defer w.unmount(w.pod("a"))
	if found, err := w.b.Mounter.FindByTag(t.Context(), "LABEL", label); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%q, %v", found, err)
	}
}

// What a pod could put in the place of an image that it may name.
func TestImageThatIsNotRoots(t *testing.T) {
	testenv.Need(t, "root") // to give a file to another user
	w := newWorld(t)
	dir, path := w.pod("a"), w.image("disk.img")
	o := options("image", path, "size", "32Mi")
	refused := func(text string) {
		t.Helper()
		w.refused(w.do(call(flex.CommandMount, dir, o)), flex.CodeInvalidArgument, text)
		w.mounted(dir, false)
	}
	w.write(path, strings.Repeat("\x00", 1<<20))
	if err := os.Chown(path, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	refused("belongs to user 1000")
	if err := errors.Join(os.Chown(path, 0, 0), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	refused("can be written to by others than root")
	if err := errors.Join(os.Chmod(path, 0o600), os.Chmod(filepath.Dir(path), 0o777)); err != nil {
		t.Fatal(err)
	}
	refused("can be written to by others than root")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	refused("can be written to by others than root") // nor is one created there
	if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	w.refused(w.do(call(flex.CommandMount, dir, o)), flex.CodeInternal, "no regular file")
}

// The calls that tell no namespace leave images alone; the directory of a
// namespace is made by the one that does.
func TestImageWithoutNamespace(t *testing.T) {
	testenv.Need(t, "xfs") // grows without a capability
	w := newWorld(t)
	o := options("image", w.path("team-new/disk.img"), "size", "300Mi", "fsType", "xfs")
	o.PodNamespace = ""
	if got, err := w.answerDevice(t.Context(), call(flex.CommandWaitForAttach, "", o)); got != w.path("team-new/disk.img") || err != nil {
		t.Errorf("waitforattach: %q, %v", got, err)
	}
	if err := w.do(call(flex.CommandMountDevice, w.device(), o)); err != nil {
		t.Error(err)
	}
	w.mounted(w.device(), false)
	mount := call(flex.CommandMount, w.pod("a"), o)
	w.refused(w.do(mount), flex.CodeInvalidArgument, "does not pass the pod's namespace", flex.OptionPodNamespace)
	if _, err := os.Stat(w.path("team-new")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("something was made: %v", err)
	}

	o.PodNamespace = "team-new"
	w.mount(mount.Dir, o)
	if st, err := os.Stat(w.path("team-new")); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the directory of the namespace: %v, %v", st, err)
	}
	// The kubelet's expandfs tells none, mounted or not: it is for claims only.
	o.PodNamespace = ""
	grow := call(flex.CommandExpandFS, mount.Dir, o)
	grow.NewSize = 400 << 20
	if err := w.do(grow); err != nil {
		t.Error(err)
	}
	w.unmount(mount.Dir)
	grow.NewSize = 500 << 20
	if err := w.do(grow); err != nil {
		t.Error(err)
	}
	// With attach: true a claim may have grown before the first mount.
	grow.Options.User = map[string]string{"image": w.path("team-new/later.img"), "size": "300Mi"}
	if err := w.do(grow); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"disk.img", "later.img"} {
		if st, err := os.Stat(w.path("team-new/" + name)); err != nil || st.Size() != 500<<20 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
}

// A disk that the node itself uses is not shared with a pod.
func TestDeviceMountedElsewhere(t *testing.T) {
	for _, fsType := range []string{"ext4", "btrfs"} {
		t.Run(fsType, func(t *testing.T) {
			testenv.Need(t, fsType)
			w := newWorld(t)
			device := w.disk("disk", 256<<20)
			w.run("mkfs."+fsType, "-q", device)
			host := w.path("host")
			if err := os.Mkdir(host, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mount(device, host, fsType, 0, ""); err != nil {
				t.Fatal(err)
			}
			o, pod := options("device", device), w.pod("a")
			for _, command := range []flex.Command{flex.CommandMount, flex.CommandMountDevice, flex.CommandExpandFS} {
				c := call(command, pod, o)
				c.NewSize = 1 << 20
				w.refused(w.do(c), flex.CodeAborted, "mounted at "+host, "not shared with pods")
				_, err := w.b.Plan(t.Context(), c)
				w.refused(err, flex.CodeAborted, "mounted at "+host)
			}
			w.mounted(pod, false)
			if err := unix.Unmount(host, 0); err != nil {
				t.Fatal(err)
			}
			w.mount(pod, o)
			w.mount(w.pod("b"), o) // pods share it
			w.unmount(pod)
			w.unmount(w.pod("b"))
		})
	}
}

// Sizes are bounded by maxSize, and by the memory of the node.
func TestSizesAreBounded(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	w.b.MaxSize = 32 << 20
	dir, image := w.pod("a"), w.image("disk.img")
	both := func(c *flex.Call, code flex.Code, texts ...string) {
		t.Helper()
		_, err := w.b.Plan(t.Context(), c)
		w.refused(err, code, texts...)
		w.refused(w.do(c), code, texts...)
	}
	both(call(flex.CommandMount, dir, options("image", image, "size", "33Mi")), flex.CodePermissionDenied, "create image "+image, "maxSize", "33554432")
	both(call(flex.CommandMount, dir, options("medium", "memory", "size", "33Mi")), flex.CodePermissionDenied, "medium memory", "maxSize")
	o := options("image", image, "size", "16Mi")
	w.mount(dir, o)
	grow := call(flex.CommandExpandFS, dir, o)
	grow.NewSize = 33 << 20
	both(grow, flex.CodePermissionDenied, "grow image "+image, "maxSize")
	w.unmount(dir)
	w.b.MaxSize = 1 << 20 // an image that is there is taken as it is
	w.mount(dir, o)
	w.unmount(dir)

	w.b.MaxSize = 1 << 62
	w.refused(w.do(call(flex.CommandMount, dir, options("medium", "memory", "size", "1Ei"))), flex.CodePermissionDenied, "half of this node's memory")
	w.refused(w.do(call(flex.CommandMount, dir, options("image", w.image("huge.img"), "size", "1Ei"))), flex.CodeInvalidArgument, "find room for image", "are a reserve")

	w.b.MaxSize = 1 << 30
	w.mount(dir, options("medium", "memory"))
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || int64(st.Blocks)*st.Bsize != defaultMemory {
		t.Errorf("memory without a size has %d bytes, %v", int64(st.Blocks)*st.Bsize, err)
	}
	w.unmount(dir)
}

// Roots that are not apart by their names, but in the filesystem, open neither images nor
// directories (security.md, F5).
func TestRootsHaveToBeApart(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(w.dir, link); err != nil {
		t.Fatal(err)
	}
	image, other := w.path("images/team-a/disk.img"), t.TempDir()
	if err := os.MkdirAll(filepath.Dir(image), 0o755); err != nil {
		t.Fatal(err)
	}
	w.b.ImageRoots, w.b.DirectoryRoots = []string{w.path("images")}, []string{other, link}
	for _, o := range []flex.Options{options("image", image, "size", "8Mi"), options("path", link)} {
		c := call(flex.CommandMount, w.pod("a"), o)
		_, planErr := w.b.Plan(t.Context(), c)
		for _, err := range []error{planErr, w.do(c)} {
			w.refused(err, flex.CodeInvalidArgument, w.path("images"), link, "are not apart")
		}
	}
	w.mount(w.pod("a"), options("path", other)) // which shows no image
	w.unmount(w.pod("a"))
	w.b.DirectoryRoots = []string{other}
	w.mount(w.pod("a"), options("image", image, "size", "8Mi"))
	w.unmount(w.pod("a"))
	w.b.ImageRoots = append(w.b.ImageRoots, link)
	w.refused(w.do(call(flex.CommandMount, w.pod("a"), options("image", image))), flex.CodeInvalidArgument, "are not apart")
}

// A device is allowed by a name below the roots, and by what leads to such a
// name. A root that was itself the name of a device passed the first check, and
// failed the second with "below none of the allowed roots".
func TestDeviceRoots(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	device, other := w.disk("disk", 32<<20), w.disk("other", 32<<20)
	w.run("mkfs.ext4", "-q", "-U", "5f1e0001-8c2f-4e6c-8d59-0c2a9b3d1c11", device)
	w.run("mkfs.ext4", "-q", "-U", "5f1e0002-8c2f-4e6c-8d59-0c2a9b3d1c11", other)
	root, open := w.path("by-id"), w.path("open")
	if err := errors.Join(os.Mkdir(root, 0o755), os.Symlink(device, root+"/one"), os.Symlink(w.dir, root+"/dir"),
		os.Mkdir(open, 0o755), os.Chmod(open, 0o777), os.Symlink(device, open+"/one")); err != nil {
		t.Fatal(err)
	}
	w.b.DeviceRoots = []string{root, open}
	dir := w.pod("a")
	for _, name := range []string{root + "/one", "UUID=5f1e0001-8c2f-4e6c-8d59-0c2a9b3d1c11"} {
		w.mount(dir, options("device", name))
		w.unmount(dir)
	}
	w.refused(w.do(call(flex.CommandMount, dir, options("device", device))), flex.CodePermissionDenied, "below none of the deviceRoots")
	w.refused(w.do(call(flex.CommandMount, dir, options("device", "UUID=5f1e0002-8c2f-4e6c-8d59-0c2a9b3d1c11"))), flex.CodePermissionDenied, fmt.Sprintf("%s has no name below the deviceRoots", other))
	w.refused(w.do(call(flex.CommandMount, dir, options("device", root+"/dir/disk"))), flex.CodeInvalidArgument, "symbolic link")
	w.refused(w.do(call(flex.CommandMount, dir, options("device", open+"/one"))), flex.CodeInvalidArgument, "can be written to by others than root")
	w.b.DeviceRoots = []string{root + "/one", open + "/one"}
	for _, name := range []string{root + "/one", "UUID=5f1e0001-8c2f-4e6c-8d59-0c2a9b3d1c11"} {
		w.mount(dir, options("device", name))
		w.unmount(dir)
	}
	w.refused(w.do(call(flex.CommandMount, dir, options("device", other))), flex.CodePermissionDenied, "below none of the deviceRoots")
	w.refused(w.do(call(flex.CommandMount, dir, options("device", open+"/one"))), flex.CodeInvalidArgument, "can be written to by others than root")
	w.mounted(dir, false)
}

// A disk with the label of another tenant's, or with a copy of its UUID, was mounted in
// its place (security.md, F6).
func TestNamesOnTheDisk(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	const uuid = "5f1e0003-8c2f-4e6c-8d59-0c2a9b3d1c11"
	device, dir := w.disk("disk", 32<<20), w.pod("a")
	w.run("mkfs.ext4", "-q", "-L", "flex-data", "-U", uuid, device)
	for _, name := range []string{"LABEL=flex-data", "PARTLABEL=flex-data", "/dev/disk/by-label/flex-data", "/dev/disk/by-partlabel/x", "/dev/disk/by-uuid/" + uuid, "/dev/disk/by-partuuid/x"} {
		w.everyCall(dir, options("device", name), flex.CodeInvalidArgument, "who writes to a disk chooses", "/dev/disk/by-id")
	}
	w.mount(dir, options("device", "UUID="+uuid))
	w.unmount(dir)
	twin := w.disk("twin", 32<<20)
	w.run("mkfs.ext4", "-q", "-U", uuid, twin)
	w.refused(w.do(call(flex.CommandMount, dir, options("device", "UUID="+uuid))), flex.CodeAborted, "several have it", device, twin)
	w.mounted(dir, false)
}

// A root that is refused by now was told as another volume at the mount point.
func TestMountedRootIsRefused(t *testing.T) {
	testenv.Need(t, "ext4", "root")
	w := newWorld(t)
	parent := t.TempDir()
	root := filepath.Join(parent, "root")
	image := filepath.Join(root, "team-a/disk.img")
	if err := os.MkdirAll(filepath.Dir(image), 0o755); err != nil {
		t.Fatal(err)
	}
	for field, o := range map[string]flex.Options{"path": options("path", root), "image": options("image", image, "size", "8Mi")} {
		w.b.ImageRoots, w.b.DirectoryRoots = nil, []string{root}
		if field == "image" {
			w.b.ImageRoots, w.b.DirectoryRoots = []string{root}, nil
		}
		dir := w.pod(field)
		w.mount(dir, o)
		if err := os.Chmod(parent, 0o777); err != nil {
			t.Fatal(err)
		}
		w.refused(w.do(call(flex.CommandMount, dir, o)), flex.CodeInvalidArgument, "chmod go-w", parent)
		if err := os.Chmod(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		w.mount(dir, o) // it is the same
		w.unmount(dir)
	}
}
