package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/storage/guest"
)

// kept is a volume that outlives the power.
type kept struct {
	*volume
	boot   *guest.Boot
	random *rand.Rand
	// disk has its filesystem; empty: it is a server's.
	disk string
	// synced is how many records must be there.
	synced int
}

func (k *kept) name() string { return k.options.VolumeName }

func (k *kept) say(format string, args ...any) {
	k.n.t.Helper()
	k.boot.Say(k.n.t, "%s %s", k.name(), fmt.Sprintf(format, args...))
}

// ofPod is a pod of this volume alone.
func (k *kept) ofPod(name string) *pod { return k.pod(k.name() + "-" + name) }

func (k *kept) mount(p *pod) {
	k.n.t.Helper()
	k.say("mount %s", p.name)
	k.until(p.tryMount)
	k.check(p)
}

// unmount is what the kubelet does when a pod has ended.
func (k *kept) unmount(p *pod) {
	k.n.t.Helper()
	k.say("unmount %s", p.name)
	k.until(func() flex.DriverStatus { return k.n.call(k.driver, "unmount", p.dir()) })
	k.say("remove %s", p.name)
	pods := filepath.Join(k.n.Root, "pods")
	for dir := p.dir(); dir != pods; dir = filepath.Dir(dir) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			k.n.t.Errorf("the kubelet cannot remove what is left of a pod: %v", err)
		}
	}
}

// until makes a callout until it succeeds, as the kubelet does.
func (k *kept) until(call func() flex.DriverStatus) {
	k.n.t.Helper()
	began := time.Now()
	for status := call(); status.Status != flex.StatusSuccess; status = call() {
		if time.Since(began) > patience {
			k.n.t.Fatalf("it is stuck: %s", status.Message)
		}
		time.Sleep(time.Second)
	}
}

// resume is what the kubelet does after a boot: of the pods that have directories, some come
// back and the others have been deleted.
func (k *kept) resume() {
	var left []*pod
	for _, name := range []string{"a", "b"} {
		p := k.ofPod(name)
		if _, err := os.Stat(filepath.Join(k.n.Root, "pods", p.name)); err != nil {
			continue
		}
		left = append(left, p)
		if k.random.IntN(2) == 0 {
			k.say("pod %s comes back", p.name)
			k.mount(p)
			k.append(p)
		}
	}
	for _, p := range left {
		k.unmount(p)
	}
	k.live()
	k.wantClean()
}

// live is one life of the volume, with two pods.
func (k *kept) live() {
	a, b := k.ofPod("a"), k.ofPod("b")
	k.mount(a)
	k.append(a)
	k.mount(b)
	k.append(b)
	if k.random.IntN(2) == 0 {
		a, b = b, a
	}
	k.unmount(a)
	k.append(b)
	k.unmount(b)
}

// A record is so long that none lies on two pages.
const recordLength = 16

func record(i int) string { return fmt.Sprintf("%*d\n", recordLength-1, i) }

// check fails the test unless the volume has all records up to one that was not synced any more.
func (k *kept) check(p *pod) {
	t := k.n.t
	t.Helper()
	got, err := os.ReadFile(filepath.Join(p.dir(), "records"))
	if err != nil && (k.synced > 0 || !errors.Is(err, fs.ErrNotExist)) {
		t.Fatalf("%d records were synced: %v", k.synced, err)
	}
	var want bytes.Buffer
	for i := range len(got) / recordLength {
		want.WriteString(record(i + 1))
	}
	if !bytes.Equal(got, want.Bytes()) || len(got)/recordLength < k.synced {
		t.Fatalf("%d records were synced; there are %d bytes, which end with %q", k.synced, len(got), got[max(0, len(got)-64):])
	}
	k.synced = len(got) / recordLength
}

// append writes some records, and changes names without an end.
func (k *kept) append(p *pod) {
	t := k.n.t
	t.Helper()
	f, err := os.OpenFile(filepath.Join(p.dir(), "records"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 1 + k.random.IntN(3) {
		if _, err := f.WriteString(record(k.synced + 1)); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		k.synced++
		k.say("synced %d", k.synced)
	}
	dir := filepath.Join(p.dir(), "names", fmt.Sprint(k.synced%10))
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(p.dir(), "new"), make([]byte, 100_000), 0o600), os.Rename(filepath.Join(p.dir(), "new"), filepath.Join(dir, fmt.Sprint(k.synced%7)))); err != nil {
		t.Fatal(err)
	}
}

// wantClean fails the test if the filesystem, which is not mounted, needs a repair.
func (k *kept) wantClean() {
	k.n.t.Helper()
	if k.disk == "" {
		return // a server's, which looks itself
	}
	k.say("check")
	argv := []string{"e2fsck", "-fn", k.disk}
	if k.options.FSType == "xfs" {
		argv = []string{"xfs_repair", "-n", k.disk}
	}
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
		k.n.t.Errorf("%q: %v\n%s", argv, err, out)
	}
}
