package testenv

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// EnvRequire names the variable that lists what must not be missing.
const EnvRequire = "FLEX_TEST_REQUIRE"

// Need skips t, saying why, unless the machine has everything named:
//
//	root       real root, in the machine's own user namespace
//	mount      a private mount namespace in which we may mount
//	loop       loop devices
//	ext4, xfs, btrfs
//	           loop devices, the kernel's file system and its mkfs
//	fuse       /dev/fuse
//	overlay    a kernel with overlay mounts, which may be made here
//	control-plane
//	           programs of a control plane, as make control-plane builds them
//	node       root, overlays, and the programs that make node-programs builds
//	prog:NAME  a program, also outside PATH in the sbin directories
//
// Where FLEX_TEST_REQUIRE lists what is missing, or is "all", t fails instead.
func Need(t testing.TB, needs ...string) {
	t.Helper()
	for _, need := range needs {
		lack, err := lacking(need)
		switch {
		case err != nil:
			t.Fatalf("testenv.Need: %v", err)
		case lack != "" && required(need):
			t.Fatalf("needs %s: %s; it must be here because %s=%s", need, lack, EnvRequire, os.Getenv(EnvRequire))
		case lack != "":
			t.Skipf("needs %s: %s", need, lack)
		}
	}
}

// Condition answers testscript conditions with the words of [Need]:
//
//	[!loop] skip 'needs loop devices'
//
// A condition that FLEX_TEST_REQUIRE asks for and that does not hold is an
// error, which fails the script.
func Condition(need string) (bool, error) {
	lack, err := lacking(need)
	if err != nil {
		return false, err
	}
	if lack != "" && required(need) {
		return false, fmt.Errorf("needs %s: %s; it must be here because %s=%s", need, lack, EnvRequire, os.Getenv(EnvRequire))
	}
	return lack == "", nil
}

func required(need string) bool {
	list := strings.Split(os.Getenv(EnvRequire), ",")
	return slices.Contains(list, "all") || slices.Contains(list, need)
}

// lacking says why need is not met, or "" if it is.
func lacking(need string) (string, error) {
	if name, ok := strings.CutPrefix(need, "prog:"); ok {
		return lackProgram(name), nil
	}
	switch need {
	case "root":
		return lackRoot(), nil
	case "mount":
		return lackMount(), nil
	case "loop":
		return lackLoop(), nil
	case "ext4", "xfs", "btrfs":
		return cmp.Or(lackLoop(), lackFilesystem(need), lackProgram("mkfs."+need)), nil
	case "fuse":
		return cmp.Or(lackMount(), lackFilesystem("fuse"), lackFile("/dev/fuse")), nil
	case "overlay":
		return cmp.Or(lackRoot(), lackMount(), lackFilesystem("overlay")), nil
	case "control-plane":
		return lackPrograms("control-plane", "etcd"), nil
	case "node":
		return cmp.Or(lackRoot(), lackFilesystem("overlay"), lackPrograms("node-programs", "kubelet", "containerd", "runc", "pause.tar")), nil
	}
	return "", fmt.Errorf("unknown need %q", need)
}

// lackRoot tells real root from root of a user namespace, who is user 0 too.
func lackRoot() string {
	if os.Geteuid() != 0 {
		return "not root"
	}
	uids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return err.Error()
	}
	if !slices.Equal(strings.Fields(string(uids)), []string{"0", "0", "4294967295"}) {
		return "not root (only in a user namespace)"
	}
	return ""
}

func lackMount() string {
	if os.Getenv(envInside) == "" {
		return "the test binary has no TestMain that calls testenv.Main"
	}
	return os.Getenv(envReason)
}

func lackLoop() string {
	return cmp.Or(lackRoot(), lackMount(), lackFile("/dev/loop-control"))
}

// lackFile opens name because its permissions alone say little about a device:
// the driver may be absent, or a container may not be allowed to use it.
func lackFile(name string) string {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err.Error()
	}
	f.Close()
	return ""
}

// lackFilesystem loads the module if need be: mount(2) would do so as well, but
// only once there is something to mount.
func lackFilesystem(name string) string {
	if haveFilesystem(name) {
		return ""
	}
	_ = exec.Command("modprobe", "--quiet", name).Run() // the next line tells
	if haveFilesystem(name) {
		return ""
	}
	return "this kernel has no " + name
}

func haveFilesystem(name string) bool {
	list, err := os.ReadFile("/proc/filesystems")
	return err == nil && slices.Contains(strings.Fields(string(list)), name)
}

// lackPrograms looks for those that a target of make builds.
func lackPrograms(target string, names ...string) string {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(os.Getenv("FLEX_PROGRAMS"), name)); err != nil {
			return err.Error() + " (make " + target + " builds it into $FLEX_PROGRAMS)"
		}
	}
	return ""
}

// lackProgram also looks where Debian keeps mkfs and losetup, which is not in
// the PATH of an ordinary user.
func lackProgram(name string) string {
	if _, err := exec.LookPath(name); err == nil {
		return ""
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return ""
		}
	}
	return name + " is not installed (make setup, as root, installs what tests need)"
}
