package escape

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A common has what is the same for all worlds: programs, and disks of which each has a
// name below every device root, and a reason why no volume may be on it.
type common struct {
	dir, binary string
	template    []byte            // an ext4
	devices     map[string]string // by their names
	cleanups    []func()
}

// label is that of a disk, and twins is what the UUID of two is made of.
const (
	label = "escape-label"
	twins = "twins"
)

func newCommon(t testing.TB, dir, binary string) *common {
	t.Helper()
	c := &common{dir: dir + "/common", binary: binary, devices: map[string]string{}}
	t.Cleanup(func() {
		for _, cleanup := range slices.Backward(c.cleanups) {
			cleanup()
		}
	})
	for _, step := range []func() error{c.formatTemplate, c.attach, c.use, c.linkByContent} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// formatTemplate makes an ext4 that can get another UUID by a write: it has no checksums.
func (c *common) formatTemplate() error {
	path := c.dir + "/template.img"
	if err := errors.Join(os.MkdirAll(c.dir+"/mnt", 0o755), os.WriteFile(path, nil, 0o600), os.Truncate(path, diskBytes)); err != nil {
		return err
	}
	if _, err := run("mkfs.ext4", "-q", "-F", "-O", "^has_journal,^metadata_csum", path); err != nil {
		return err
	}
	var err error
	c.template, err = os.ReadFile(path)
	return err
}

// attach makes the disks.
func (c *common) attach() error {
	raw := make([]byte, diskBytes)
	copy(raw[5<<20:], canary)
	blank := make([]byte, diskBytes)
	for _, disk := range []struct {
		name        string
		content     []byte
		uuid, label string
	}{
		{"looped", c.template, "looped", ""},
		{"opened", blank, "", ""},
		{"contained", blank, "", ""},
		{"raw", raw, "", ""},
		{"labelled", c.template, "labelled", label},
		{"twin-1", c.template, twins, ""},
		{"twin-2", c.template, twins, ""},
	} {
		path := c.dir + "/" + disk.name + ".img"
		err := sparse(path, disk.content)
		if err == nil && disk.uuid != "" {
			err = stamp(path, disk.uuid, disk.label)
		}
		if err == nil {
			c.devices[disk.name], err = c.loop(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// use takes three disks into use: a loop device shows one, which is mounted by that, a
// program has one open, and a container has the node of one.
func (c *common) use() error {
	top, err := c.loop(c.devices["looped"])
	if err != nil {
		return err
	}
	open, err := os.OpenFile(c.devices["opened"], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	c.cleanups = append(c.cleanups, func() {
		open.Close()
		_ = unix.Unmount(c.dir+"/mnt", unix.MNT_DETACH)
		_ = unix.Unmount(c.dir+"/node", unix.MNT_DETACH)
	})
	return errors.Join(
		unix.Mount(top, c.dir+"/mnt", "ext4", 0, ""), os.WriteFile(c.dir+"/mnt/file", []byte(canary), 0o600),
		os.WriteFile(c.dir+"/node", nil, 0o600), unix.Mount(c.devices["contained"], c.dir+"/node", "", unix.MS_BIND, ""))
}

// linkByContent makes the links that udev makes of what is on a disk.
func (c *common) linkByContent() error {
	var errs []error
	for by, name := range map[string]string{"label": label, "partlabel": label, "uuid": uuid(twins), "partuuid": uuid(twins)} {
		dir := "/dev/disk/by-" + by
		errs = append(errs, os.MkdirAll(dir, 0o755), os.Symlink(c.devices["labelled"], dir+"/"+name))
	}
	return errors.Join(errs...)
}

// loop attaches a file to a loop device. What detaches it is a process of its own, which
// does so when this one has ended, however it ends: the device may not go with its last
// user, which the driver takes for an image's.
func (c *common) loop(file string) (string, error) {
	out, err := run("losetup", "-f", "--show", file)
	if err != nil {
		return "", err
	}
	device := strings.TrimSpace(out)
	keeper := exec.Command("sh", "-c", `read -r line; exec losetup -d "$0"`, device)
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := keeper.StdinPipe()
	if err == nil {
		err = keeper.Start()
	}
	c.cleanups = append(c.cleanups, func() { in.Close(); _ = keeper.Wait() })
	return device, err
}

// run runs a program of the test's own, which may hang as little as the driver.
func run(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// uuid is one that is made of a name.
func uuid(name string) string {
	u := uuidBytes(name)
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

func uuidBytes(name string) []byte {
	h := fnv.New128a()
	h.Write([]byte(name))
	return h.Sum(nil)
}

// stamp gives an ext4 without checksums a UUID and a label (linux, fs/ext4/ext4.h,
// struct ext4_super_block).
func stamp(path, name, label string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	const superblock = 1024
	_, errUUID := f.WriteAt(uuidBytes(name), superblock+0x68)
	_, errLabel := f.WriteAt([]byte(label), superblock+0x78)
	return errors.Join(errUUID, errLabel)
}

// ext4 makes an image with a filesystem that no other has.
func (c *common) ext4(path string) error {
	if err := sparse(path, c.template); err != nil {
		return err
	}
	return stamp(path, path, "")
}

// sparse writes a file with holes for zeros.
func sparse(path string, content []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	const block = 4096
	zeros := string(make([]byte, block))
	for at := 0; at+block <= len(content); at += block {
		if part := content[at : at+block]; string(part) != zeros {
			if _, err := f.WriteAt(part, int64(at)); err != nil {
				return err
			}
		}
	}
	return f.Truncate(int64(len(content)))
}
