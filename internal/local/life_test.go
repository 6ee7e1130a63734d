package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestImageLife(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	w.b.ApplyFSGroup = true
	image, a, b, ro := w.image("disk.img"), w.pod("a"), w.pod("b"), w.pod("ro")
	o := options("image", image, "size", "32Mi", "fsType", "ext4")
	group := int64(4711)
	o.FSGroup = &group
	w.mount(a, o)
	w.mount(a, o) // the kubelet may ask again
	var st unix.Stat_t
	if err := unix.Stat(a, &st); err != nil || st.Gid != 4711 || st.Mode&0o2770 != 0o2770 {
		t.Errorf("group %d, mode %o, %v", st.Gid, st.Mode, err)
	}
	w.write(a+"/file", "content")
	o.User["size"] = "64Mi" // of what is there already
	w.mount(b, o)
	reader := o
	reader.ReadOnly = true
	w.mount(ro, reader)
	w.mount(ro, reader)
	if got := w.read(b+"/file") + w.read(ro+"/file"); got != "contentcontent" {
		t.Errorf("files are %q", got)
	}
	if err := os.WriteFile(ro+"/x", nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing through the read-only mount: %v", err)
	}
	// What is mounted is not what is asked for.
	w.refused(w.do(call(flex.CommandMount, a, reader)), flex.CodeAlreadyExists, "read-only=false, not true")
	w.refused(w.do(call(flex.CommandMount, ro, o)), flex.CodeAlreadyExists, "read-only=true, not false")
	w.refused(w.do(call(flex.CommandMount, a, options("image", w.image("other.img"), "size", "32Mi"))), flex.CodeAlreadyExists, "is in use", "not this volume (image "+w.image("other.img"))
	w.refused(w.do(call(flex.CommandMount, a, options("medium", "memory"))), flex.CodeAlreadyExists, "is in use")
	if _, err := os.Stat(w.image("other.img")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a volume that was not mounted was created: %v", err)
	}
	for _, dir := range []string{b, a, ro} {
		w.unmount(dir)
		w.unmount(dir)
	}
	if size, err := os.Stat(image); err != nil || size.Size() != 32<<20 {
		t.Errorf("the image: %v, %v", size, err)
	}
}

// With attach: true, as the kubelet calls it.
func TestDeviceLife(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	device := w.disk("disk", 32<<20)
	o := options("device", device, "fsType", "ext4")
	wait := call(flex.CommandWaitForAttach, "", o)
	if got, err := w.answerDevice(t.Context(), wait); got != device || err != nil {
		t.Errorf("waitforattach: %q, %v", got, err)
	}
	global, pod := w.device(), w.pod("a")
	if err := w.do(call(flex.CommandMountDevice, global, o)); err != nil {
		t.Fatal(err)
	}
	w.mounted(global, true)
	w.mount(pod, o)
	w.write(global+"/file", "content")
	if got := w.read(pod + "/file"); got != "content" {
		t.Errorf("file is %q", got)
	}
	w.unmount(pod)
	if err := w.do(call(flex.CommandUnmountDevice, global, flex.Options{})); err != nil {
		t.Fatal(err)
	}
	w.mounted(global, false)
	if err := w.do(call(flex.CommandUnmountDevice, global, flex.Options{})); err != nil {
		t.Error(err)
	}
	f, err := os.OpenFile(device, os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		t.Errorf("the device is not free after unmountdevice: %v", err)
	}
	f.Close()
}

// Success of unmountdevice says that the disk is free, so a mount that cannot
// be seen from the driver's namespace has to be waited for, and named.
func TestUnmountDeviceInUse(t *testing.T) {
	testenv.Need(t, "ext4")
	t.Parallel() // waits
	w := newWorld(t)
	device := w.disk("disk", 32<<20)
	global, other := w.device(), w.pod("other")
	o := options("device", device)
	if err := w.do(call(flex.CommandMountDevice, global, o)); err != nil {
		t.Fatal(err)
	}
	w.mount(other, o)
	w.refused(w.do(call(flex.CommandUnmountDevice, global, flex.Options{})), flex.CodeAborted, "release "+device, "still in use")
	w.unmount(other)
	if err := w.do(call(flex.CommandUnmountDevice, global, flex.Options{})); err != nil {
		t.Error(err)
	}
}

// A disk that appears while waitforattach waits.
func TestWaitForDevice(t *testing.T) {
	w := newWorld(t)
	device, link := w.disk("disk", 1<<20), w.path("by-id")
	result := make(chan string, 1)
	go func() {
		got, err := w.answerDevice(t.Context(), call(flex.CommandWaitForAttach, "", options("device", link)))
		result <- fmt.Sprint(got, err)
	}()
	if err := os.Symlink(device, link); err != nil {
		t.Fatal(err)
	}
	if got := <-result; got != device+"<nil>" {
		t.Errorf("waitforattach: %s", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := w.answerDevice(ctx, call(flex.CommandWaitForAttach, "", options("device", w.path("none"))))
	w.refused(err, flex.CodeDeadlineExceeded, "device "+w.path("none")+" has not appeared")
	// What is there and no device is no reason to wait.
	_, err = w.answerDevice(t.Context(), call(flex.CommandWaitForAttach, "", options("device", "/dev/null")))
	w.refused(err, flex.CodeInvalidArgument, "is no block device")
}

// Whatever fails leaves no mount and no directory of its own. An image that was
// made for it stays, for the next try.
func TestMountFailsClean(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	shared := w.shared()
	w.write(w.path("file"), "no disk at all, but long enough to be one: "+strings.Repeat("x", 1<<20))
	for name, tt := range map[string]struct {
		o     flex.Options
		code  flex.Code
		texts []string
	}{
		"options":           {options("image", "x"), flex.CodeInvalidArgument, []string{"the path is not absolute"}},
		"mount option":      {options("image", w.image("new.img"), "size", "32Mi", "mountOptions", "uquota"), flex.CodeInternal, []string{"Unknown parameter 'uquota'"}},
		"too small":         {options("image", w.image("new.img"), "size", "1Ki"), flex.CodeInvalidArgument, []string{"too small for ext4"}},
		"no image":          {options("image", w.image("new.img")), flex.CodeNotFound, []string{"with the option size it would be created"}},
		"read-only":         {options("image", w.image("new.img"), "size", "32Mi", "ro", "true"), flex.CodeNotFound, []string{"new.img"}},
		"no such directory": {options("image", w.image("a/new.img"), "size", "32Mi"), flex.CodeNotFound, []string{"is the disk that should hold it mounted?"}},
		"image is a device": {options("image", "/dev/null"), flex.CodePermissionDenied, []string{"below none of the imageRoots"}},
		"no device":         {options("device", w.path("none")), flex.CodeNotFound, []string{"no such file"}},
		"no tag":            {options("device", "UUID=flex test none"), flex.CodeNotFound, []string{"find device UUID=flex test none"}},
		"no block device":   {options("device", w.path("file")), flex.CodeInvalidArgument, []string{"is no block device (a disk image is given with the option image, a directory with path)"}},
		"no directory":      {options("path", shared+"/none"), flex.CodeNotFound, []string{"bind " + shared + "/none"}},
		"directory outside": {options("path", "/etc"), flex.CodePermissionDenied, []string{"below none of the directoryRoots"}},
		"directory option":  {options("path", shared, "mountOptions", "discard"), flex.CodeInvalidArgument, []string{"not allowed for a directory: discard"}},
		"memory option":     {options("medium", "memory", "mountOptions", "nonsense"), flex.CodeInvalidArgument, []string{"not allowed for memory: nonsense"}},
		"unknown source":    {options("source", "a:/b", "fsType", "nonesuch"), flex.CodeInvalidArgument, []string{"nonesuch"}},
		"no mount program":  {options("source", "a@tcp:/b", "fsType", "lustre"), flex.CodeInternal, []string{"mount.lustre"}},
		"no secret":         {options("source", "//a/b", "fsType", "cifs", "mountOptions", "credentials=$(secretFile:k)"), flex.CodeInvalidArgument, []string{`the key "k"`, "set secretRef"}},
	} {
		t.Run(name, func(t *testing.T) {
			there := w.pod("there")
			missing := filepath.Join(filepath.Dir(there), "missing")
			for _, dir := range []string{there, missing} {
				w.refused(w.do(call(flex.CommandMount, dir, tt.o)), tt.code, tt.texts...)
				w.mounted(dir, false)
			}
			if _, err := os.Stat(missing); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("left %s: %v", missing, err)
			}
			if _, err := os.Stat(there); err != nil {
				t.Errorf("took away %s: %v", there, err)
			}
			if err := os.Remove(w.image("new.img")); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		})
	}
	if len(w.read(w.path("file"))) < 1<<20 {
		t.Error("a file that was there has changed")
	}
}

// A mount that died is replaced.
func TestMountReplacesDead(t *testing.T) {
	w := newWorld(t)
	dir := w.pod("a")
	w.deadFUSE(dir, false)
	w.mount(dir, options("medium", "memory", "size", "1Mi"))
	w.write(dir+"/file", "")
	w.unmount(dir)
}

// TestMountLeavesSilent: the kubelet calls mount again when it was restarted. A
// server that was away just then had its mounts forced off under the pods.
func TestMountLeavesSilent(t *testing.T) {
	t.Parallel() // waits for an answer
	w := newWorld(t)
	dir := w.pod("a")
	w.deadFUSE(dir, true)
	err := w.do(call(flex.CommandMount, dir, options("medium", "memory", "size", "1Mi")))
	w.refused(err, flex.CodeUnavailable, dir, "does not answer", "left as it is")
	infos, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(dir))
	if err != nil || len(infos) != 1 || infos[0].FSType != "fuse" {
		t.Errorf("mounted: %v, %v", infos, err)
	}
	w.unmount(dir)
}

// Two calls for one directory take turns, and one does not wait for ever.
func TestMountTakesTurns(t *testing.T) {
	w := newWorld(t)
	dir := w.pod("a")
	lock, err := lock(t.Context(), w.kubelet.Root, "target "+dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = w.b.Driver().Handle(ctx, call(flex.CommandMount, dir, options("medium", "memory")))
	w.refused(err, flex.CodeAborted, "lock target "+dir, "another call is at work on it")
	lock.Close()
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			if err := w.do(call(flex.CommandMount, dir, options("medium", "memory", "size", "1Mi"))); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	infos, err := mountinfo.GetMounts(func(i *mountinfo.Info) (bool, bool) { return i.Mountpoint != dir, false })
	if len(infos) != 1 || err != nil {
		t.Errorf("%d mounts, %v", len(infos), err)
	}
	w.unmount(dir)
}

func TestRootOfKubelet(t *testing.T) {
	w := newWorld(t)
	for _, dir := range []string{"/mnt", w.path("x"), "/etc/pods/x/volumes/a/b"} {
		for _, command := range []flex.Command{flex.CommandMount, flex.CommandUnmount} {
			w.refused(w.do(call(command, dir, options("medium", "memory"))), flex.CodeInvalidArgument, "is no directory of a FlexVolume", "give --kubelet-dir")
		}
	}
	// By hand, anywhere below a directory that was named, and not elsewhere.
	w.b.KubeletDir = w.kubelet.Root
	dir := filepath.Join(w.kubelet.Root, "pods", "by-hand")
	w.mount(dir, options("medium", "memory", "size", "1Mi"))
	w.unmount(dir)
	w.refused(w.do(call(flex.CommandMount, w.path("x"), options("medium", "memory"))), flex.CodeInvalidArgument, "it is not below "+w.kubelet.Root)
	if err := os.Symlink(w.dir, filepath.Join(w.kubelet.Root, "pods", "link")); err != nil {
		t.Fatal(err)
	}
	w.refused(w.do(call(flex.CommandMount, filepath.Join(w.kubelet.Root, "pods", "link", "x"), options("medium", "memory"))), flex.CodeInvalidArgument, "a symbolic link is on the way")
	// What is no more cannot be mounted.
	if err := w.do(call(flex.CommandUnmount, filepath.Join(w.kubelet.Root, "pods", "none", "at", "all"), flex.Options{})); err != nil {
		t.Error(err)
	}
}

func TestRoots(t *testing.T) {
	w := newWorld(t)
	dir := w.pod("a")
	device := w.disk("disk", 1<<20)
	w.refused(w.do(call(flex.CommandMount, dir, options("path", w.dir))), flex.CodePermissionDenied, "this node allows no volumes with path", "directoryRoots")
	w.b.ImageRoots, w.b.DeviceRoots = []string{"/images"}, []string{"/dev/disk/by-id"}
	w.refused(w.do(call(flex.CommandMount, dir, options("image", w.image("disk")))), flex.CodePermissionDenied, "below none of the imageRoots", "(/images)", "--image-root")
	w.refused(w.do(call(flex.CommandMount, dir, options("device", device))), flex.CodePermissionDenied, "below none of the deviceRoots", "/dev/disk/by-id")
	w.mounted(dir, false)
}

// Where <kubelet dir>/pods is a symbolic link (bottlerocket-os/bottlerocket#2218), neither
// mount nor unmount worked. The mount table has the paths that the link leads to.
func TestPodsDirectoryIsALink(t *testing.T) {
	testenv.Need(t, "ext4", "loop")
	w := newWorld(t)
	pods := filepath.Join(w.kubelet.Root, "pods")
	real := filepath.Join(filepath.Dir(filepath.Dir(w.kubelet.Root)), "elsewhere")
	if err := errors.Join(os.Rename(pods, real), os.Symlink(real, pods)); err != nil {
		t.Fatal(err)
	}
	device := w.disk("disk", 32<<20)
	a, b := w.pod("a"), w.pod("b")
	for _, dir := range []string{a, b} { // the second one shares what the first one has mounted
		if err := w.do(call(flex.CommandMount, dir, options("device", device))); err != nil {
			t.Fatal(err)
		}
		w.mounted(strings.Replace(dir, pods, real, 1), true)
	}
	if _, err := w.b.Plan(t.Context(), call(flex.CommandMount, w.pod("c"), options("device", device))); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{a, b} {
		if err := w.do(call(flex.CommandUnmount, dir, flex.Options{})); err != nil {
			t.Error(err)
		}
		w.mounted(strings.Replace(dir, pods, real, 1), false)
	}
}

// A mount program that outlived its call mounted between the look at the target and the
// mount, which failed with "unmount it first" (found by the crash matrix on a busy machine).
func TestMountedMeanwhile(t *testing.T) {
	testenv.Need(t, "root")
	w := newWorld(t)
	source, dir := w.shared(), w.pod("a")
	o := options("path", source)
	for i := range 500 {
		mounted := make(chan error)
		go func() {
			time.Sleep(time.Duration(i) * 2 * time.Microsecond)
			mounted <- unix.Mount(source, dir, "", unix.MS_BIND, "")
		}()
		err := w.do(call(flex.CommandMount, dir, o))
		if err != nil && strings.Contains(err.Error(), "another process mounts at this path") {
			err = nil // on top of the call's own
		}
		if err := errors.Join(err, <-mounted); err != nil {
			t.Errorf("after %d µs: %v", 2*i, err)
		}
		w.unmount(dir)
	}
}
