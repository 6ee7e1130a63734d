package mounter_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// The disk of another tenant that is in use in a way that the mount table does not show
// was mounted a second time, or formatted (security.md, F1).
func TestDiskInUse(t *testing.T) {
	testenv.Need(t, "ext4", "loop")
	for name, tt := range inUse() {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // waits whether programs close the device
			for _, content := range tt.contents() {
				d := partitioned(t)
				device := d.device
				if tt.partition {
					device = d.partition
				}
				if content == "ext4" {
					mustRun(t, "mkfs.ext4", "-q", "-F", device)
				}
				text := tt.use(t, d)
				before, target, m := hash(t, d.device), newTarget(t), mounter.Mounter{}
				disk := mounter.Disk{Device: device, FSType: "ext4", Shares: func(string) bool { return true }}
				err := m.MountDisk(t.Context(), disk, target, nil)
				requireError(t, err, mounter.ErrBusy, device, text)
				if strings.Contains(err.Error(), "cannot tell") { // it has told
					t.Errorf("error: %v", err)
				}
				requireMounts(t, target.Path(), 0)
				if hash(t, d.device) != before {
					t.Errorf("a disk with %s was written to", content)
				}
			}
		})
	}
}

type use struct {
	partition bool // the volume is the partition, not the whole disk
	raw       bool
	use       func(t *testing.T, d wholeDisk) (text string)
}

// contents: a disk with nothing on it would be formatted.
func (u use) contents() []string {
	if u.raw {
		return []string{"ext4", "nothing"}
	}
	return []string{"ext4"}
}

func inUse() map[string]use {
	return map[string]use{
		"loop":                                   {false, true, func(t *testing.T, d wholeDisk) string { return showLoop(t, d.device) }},
		"loop over its partition":                {false, false, func(t *testing.T, d wholeDisk) string { return showLoop(t, d.partition) }},
		"loop over its whole disk":               {true, false, func(t *testing.T, d wholeDisk) string { return showLoop(t, d.device) }},
		"loop over the same file":                {false, false, func(t *testing.T, d wholeDisk) string { return showLoop(t, d.path) }},
		"partition's whole, by file":             {true, false, func(t *testing.T, d wholeDisk) string { return showLoop(t, d.path) }},
		"open to read":                           {false, false, func(t *testing.T, d wholeDisk) string { return holdOpen(t, d.device, os.O_RDONLY) }},
		"open to write":                          {false, true, func(t *testing.T, d wholeDisk) string { return holdOpen(t, d.device, os.O_RDWR) }},
		"partition open":                         {false, false, func(t *testing.T, d wholeDisk) string { return holdOpen(t, d.partition, os.O_RDWR) }},
		"whole disk open":                        {true, false, func(t *testing.T, d wholeDisk) string { return holdOpen(t, d.device, os.O_RDWR) }},
		"open by another node":                   {false, false, func(t *testing.T, d wholeDisk) string { return holdOpen(t, otherNode(t, d.device), os.O_RDWR) }},
		"node bind-mounted":                      {false, false, func(t *testing.T, d wholeDisk) string { return bindNode(t, d.device) }},
		"another node bind-mounted":              {false, false, func(t *testing.T, d wholeDisk) string { return bindNode(t, otherNode(t, d.device)) }},
		"node of its partition bind-mounted":     {false, false, func(t *testing.T, d wholeDisk) string { return bindNode(t, d.partition) }},
		"node bind-mounted in another namespace": {false, false, bindElsewhere},
		"swap":                                   {false, false, func(t *testing.T, d wholeDisk) string { return claim(t, d.device) }},
		"swap on a partition":                    {false, false, func(t *testing.T, d wholeDisk) string { return claim(t, d.partition) }},
		"part of LVM":                            {false, true, func(t *testing.T, d wholeDisk) string { return hold(t, d.device) }},
		"partition is part of RAID":              {false, false, func(t *testing.T, d wholeDisk) string { return hold(t, d.partition) }},
		"whole disk is part of multipath":        {true, false, func(t *testing.T, d wholeDisk) string { return hold(t, d.device) }},
		"whole disk is swap":                     {true, false, func(t *testing.T, d wholeDisk) string { return claim(t, d.device) }},
	}
}

// A wholeDisk has a partition, which udev need not have seen.
type wholeDisk struct{ path, device, partition string }

func partitioned(t *testing.T) wholeDisk {
	t.Helper()
	path := newImage(t, 64*testenv.MiB)
	d := wholeDisk{path: path, device: strings.TrimSpace(mustRun(t, "losetup", "--find", "--show", "--partscan", path))}
	t.Cleanup(func() { detach(t, d.device) })
	d.partition = d.device + "p1"
	mustRun(t, "addpart", d.device, "1", "2048", "65536")
	return d
}

// showLoop has a loop device show a device or image, as the kubelet does for each volume
// with volumeMode: Block.
func showLoop(t *testing.T, of string) string {
	t.Helper()
	device := strings.TrimSpace(mustRun(t, "losetup", "--find", "--show", of))
	t.Cleanup(func() { detach(t, device) })
	return device
}

func detach(t *testing.T, device string) {
	t.Helper()
	if out, err := exec.Command("/usr/sbin/losetup", "--detach", device).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// holdOpen has another process keep a device open.
func holdOpen(t *testing.T, device string, flag int) string {
	t.Helper()
	f, err := os.OpenFile(device, flag, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return startHolder(t, f, "cat")
}

// startHolder starts a program that ends with the test, with f open, and returns what
// identifies it in a message.
func startHolder(t *testing.T, f *os.File, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.ExtraFiles = []*os.File{f}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = cmd.Wait() })
	return "pid " + strconv.Itoa(cmd.Process.Pid)
}

// otherNode makes a second node of a device, as a container runtime does.
func otherNode(t *testing.T, device string) string {
	t.Helper()
	var st unix.Stat_t
	dir := newDir(t)
	err := unix.Stat(device, &st)
	node := filepath.Join(dir, "xvda")
	err = errors.Join(err, unix.Mount("dev", dir, "tmpfs", 0, ""), unix.Mknod(node, unix.S_IFBLK|0o600, int(st.Rdev)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return node
}

// bindNode binds a node as the kubelet publishes a volume with volumeMode: Block.
func bindNode(t *testing.T, node string) string {
	t.Helper()
	at := filepath.Join(newDir(t), "volumeDevice")
	mustWrite(t, at, "")
	if err := unix.Mount(node, at, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	return at
}

func bindElsewhere(t *testing.T, d wholeDisk) string {
	at := filepath.Join(newDir(t), "volumeDevice")
	mustWrite(t, at, "")
	return elsewhere(t, "mount --bind "+d.device+" "+at)
}

// elsewhere runs a command in another mount namespace, which ends with the test.
func elsewhere(t *testing.T, command string) string {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "sh", "-c", command+" && echo done && exec cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = cmd.Wait() })
	if word, err := bufio.NewReader(stdout).ReadString('\n'); word != "done\n" {
		t.Fatalf("%s: %q, %v", command, word, err)
	}
	return "pid " + strconv.Itoa(cmd.Process.Pid)
}

// claim has a device as swap has it: for itself alone, and without a file that /proc shows,
// since the driver skips its own process, which is that of the test. Swap on a loop device
// itself can stop the machine.
func claim(t *testing.T, device string) string {
	t.Helper()
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return "swap"
}

// hold has the kernel say that a device is part of another: there need be no device mapper.
func hold(t *testing.T, device string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks("/sys/class/block/" + filepath.Base(device) + "/holders")
	if err == nil {
		err = unix.Mount("holders", dir, "tmpfs", 0, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := os.WriteFile(dir+"/dm-7", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return "it is part of /dev/dm-7"
}

// The loop device of another tenant's disk is another name of that disk.
func TestDiskIsLoopOfDevice(t *testing.T) {
	testenv.Need(t, "ext4", "loop")
	d := nodeDisk(t)
	mustRun(t, "mkfs.ext4", "-q", d.device)
	var m mounter.Mounter
	target := newTarget(t)
	disk := mounter.Disk{Device: showLoop(t, d.device), Shares: func(string) bool { return true }}
	requireError(t, m.MountDisk(t.Context(), disk, target, nil), mounter.ErrBusy, disk.Device, "another block device", d.device)
	requireMounts(t, target.Path(), 0)
}

// Programs of udev open each new device for a moment.
func TestDiskOpenForAMoment(t *testing.T) {
	testenv.Need(t, "ext4", "loop")
	d, target, m := nodeDisk(t), newTarget(t), mounter.Mounter{}
	f, err := os.Open(d.device)
	if err != nil {
		t.Fatal(err)
	}
	startHolder(t, f, "sleep", "0.3")
	f.Close()
	start := time.Now()
	disk := mounter.Disk{Device: d.device, FSType: "ext4", Shares: func(string) bool { return true }}
	if err := m.MountDisk(t.Context(), disk, target, nil); err != nil {
		t.Fatal(err)
	}
	t.Logf("mounted after %v", time.Since(start))
	mustUnmount(t, target)
}

// Two pods have one disk, and the second one's container shows it somewhere else.
func TestDiskInUseByItsPods(t *testing.T) {
	testenv.Need(t, "ext4", "loop")
	d, a, b, m := nodeDisk(t), newTarget(t), newTarget(t), mounter.Mounter{}
	disk := mounter.Disk{Device: d.device, FSType: "ext4", Shares: func(at string) bool { return at == a.Path() }}
	if err := m.MountDisk(t.Context(), disk, a, nil); err != nil {
		t.Fatal(err)
	}
	container := newDir(t)
	elsewhere(t, "mount --bind "+a.Path()+" "+container)
	if err := m.MountDisk(t.Context(), disk, b, nil); err != nil {
		t.Fatal(err)
	}
	mustUnmount(t, b)
	mustUnmount(t, a)
}
