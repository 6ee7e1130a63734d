package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// An image of a volume with a wrong option stayed for ever, and the corrected volume
// failed with the same text (longhorn#53).
func TestFailedMountTakesItsImageBack(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	dir, image := w.pod("a"), w.image("disk.img")
	bad := options("image", image, "size", "8Mi", "fsType", "ext4", "mountOptions", "journal_async_commit")
	w.refused(w.do(call(flex.CommandMount, dir, bad)), flex.CodeInternal, "journal_async_commit")
	if _, err := os.Stat(image); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the image stays: %v", err)
	}
	w.mount(dir, options("image", image, "size", "32Mi", "fsType", "ext4"))
	w.unmount(dir)
	if st, err := os.Stat(image); err != nil || st.Size() != 32<<20 {
		t.Errorf("the image: %v, %v", st, err)
	}
	w.refused(w.do(call(flex.CommandMount, dir, bad)), flex.CodeInternal, "journal_async_commit")
	if _, err := os.Stat(image); err != nil {
		t.Errorf("an image that was there before: %v", err)
	}
}

func TestImageIsTooSmall(t *testing.T) {
	w := newWorld(t)
	for fsType, size := range map[string]string{"": "10", "ext4": "10", "ext3": "1000Ki", "xfs": "299Mi", "btrfs": "108Mi"} {
		o := options("image", w.image("disk.img"), "size", size, "fsType", fsType)
		w.refused(w.do(call(flex.CommandMount, w.pod("a"), o)), flex.CodeInvalidArgument, "size "+size+" is too small", "is the unit missing?")
	}
	if _, err := os.Stat(w.image("disk.img")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an image was made: %v", err)
	}
}

// Twenty sparse images of 60 GiB on a disk of 252 GB were created, and could fill it
// (security.md, F3).
func TestImagesLeaveAReserve(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	if err := unix.Mount("images", w.dir, "tmpfs", 0, "size=1000m,mode=0755"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(w.dir, unix.MNT_DETACH) }()
	for _, name := range []string{"a", "b"} {
		w.mount(w.pod(name), options("image", w.image(name+".img"), "size", "400Mi"))
		w.unmount(w.pod(name))
	}
	tooMuch := call(flex.CommandMount, w.pod("c"), options("image", w.path("team-a/c.img"), "size", "400Mi"))
	_, err := w.b.Plan(t.Context(), tooMuch)
	w.refused(err, flex.CodeInvalidArgument, "find room for image", "are promised to other images")
	w.refused(w.do(tooMuch), flex.CodeInvalidArgument, "find room for image", "are promised to other images")
	if _, err := os.Stat(w.path("team-a/c.img")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the image was made: %v", err)
	}
	grow := call(flex.CommandExpandFS, w.pod("a"), options("image", w.image("a.img")))
	grow.NewSize = 800 << 20
	w.refused(w.do(grow), flex.CodeInvalidArgument, "find room for image")
	if st, err := os.Stat(w.image("a.img")); err != nil || st.Size() != 400<<20 {
		t.Error(fmt.Sprint(st, err))
	}
}

// One namespace could take all of a node's disk but the reserve, with images of any
// number (security.md, F3).
func TestNamespaceCaps(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	w.b.MaxSizePerNamespace, w.b.MaxImagesPerNamespace = 64<<20, 2
	refused := func(c *flex.Call, texts ...string) {
		t.Helper()
		_, err := w.b.Plan(t.Context(), c)
		w.refused(err, flex.CodePermissionDenied, texts...)
		w.refused(w.do(c), flex.CodePermissionDenied, texts...)
	}
	create := func(name, size string) *flex.Call {
		return call(flex.CommandMount, w.pod(name), options("image", w.image(name+".img"), "size", size))
	}
	for _, name := range []string{"a", "b"} {
		if err := w.do(create(name, "16Mi")); err != nil {
			t.Fatal(err)
		}
		w.unmount(w.pod(name))
	}
	refused(create("c", "16Mi"), "find room for image "+w.image("c.img"), "namespace team-a has 2 images", "maxImagesPerNamespace", "--max-images-per-namespace")
	w.b.MaxImagesPerNamespace = 3
	refused(create("c", "33Mi"), "find room for image "+w.image("c.img"), "the images of namespace team-a would have 68157440 bytes", "maxSizePerNamespace", "67108864", "--max-size-per-namespace")
	grow := call(flex.CommandExpandFS, w.pod("a"), options("image", w.image("a.img")))
	grow.NewSize = 49 << 20
	w.refused(w.do(grow), flex.CodePermissionDenied, "maxSizePerNamespace")

	other := options("image", w.path("team-b/d.img"), "size", "64Mi")
	other.PodNamespace = "team-b"
	w.mount(w.pod("d"), other) // its own namespace, its own cap
	w.unmount(w.pod("d"))
	w.b.MaxImagesPerNamespace, w.b.MaxSizePerNamespace = 1, 1
	w.mount(w.pod("a"), options("image", w.image("a.img"), "size", "16Mi")) // it exists
	w.unmount(w.pod("a"))
}

func TestNamespaceCapHoldsForCallsAtOnce(t *testing.T) {
	w := newWorld(t)
	w.b.MaxSizePerNamespace, w.b.MaxImagesPerNamespace = 100<<20, 7
	var group sync.WaitGroup
	for i := range 20 {
		v := &Volume{Kind: kindImage, Source: w.image(fmt.Sprintf("%d.img", i)), Size: 1 << 20}
		group.Go(func() {
			image, unlock, err := w.b.openImage(t.Context(), v, w.kubelet.Root, namespace)
			if err == nil {
				image.Created = false // stays
				unlock()
			} else if flex.CodeOf(err) != flex.CodePermissionDenied {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if made, err := os.ReadDir(w.path(namespace)); len(made) != 7 || err != nil {
		t.Errorf("%d images were made, want 7: %v", len(made), err)
	}
}

// A call that waited while another one made the image counted it twice.
func TestImageThatIsThereMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.b.MaxImagesPerNamespace, w.b.MaxSizePerNamespace = 1, 1<<20
	v := &Volume{Kind: kindImage, Source: w.image("a.img"), Size: 1 << 20}
	for _, created := range []bool{true, false} {
		image, err := w.b.createImage(t.Context(), v, w.kubelet.Root, namespace)
		if err != nil {
			t.Fatalf("created %t: %v", created, err)
		}
		if image.Created != created {
			t.Errorf("Created is %t, want %t", image.Created, created)
		}
		defer image.Close()
	}
}

// Where there is no O_TMPFILE, as on NFS, a creation that was killed left a file that counted
// for good: its own volume could not be created any more.
func TestKilledCreation(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	w.b.MaxImagesPerNamespace, w.b.MaxSizePerNamespace = 1, 16<<20
	if err := errors.Join(os.Mkdir(w.path(namespace), 0o700), os.WriteFile(w.image("a.img"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if u, err := usageOf(w.path(namespace)); err != nil || u != (usage{}) {
		t.Errorf("what was left counts: %+v, %v", u, err)
	}
	for range 2 {
		w.mount(w.pod("a"), options("image", w.image("a.img"), "size", "16Mi"))
		w.unmount(w.pod("a"))
	}
	if u, err := usageOf(w.path(namespace)); err != nil || u.images != 1 || u.size != 16<<20 {
		t.Errorf("used are %+v, %v", u, err)
	}
}
