package contract

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// envRequire lists what must not be missing; "all" means everything. It has
// the words and the meaning that it has in the main module's tests.
const envRequire = "FLEX_TEST_REQUIRE"

// need skips t, saying why, unless the machine has everything named; where
// envRequire asks for it, t fails instead:
//
//	root       real root and a mount namespace of its own
//	loop       loop devices
//	ext4, xfs  loop devices and the file system
//	fuse       /dev/fuse
//	NAME       any other word is a program
func need(t *testing.T, needs ...string) {
	t.Helper()
	required := strings.Split(os.Getenv(envRequire), ",")
	for _, need := range needs {
		lack := lacking(need)
		switch {
		case lack == "":
		case slices.Contains(required, "all"), slices.Contains(required, need):
			t.Fatalf("needs %s: %s; it must be here because %s=%s", need, lack, envRequire, os.Getenv(envRequire))
		default:
			t.Skipf("needs %s: %s", need, lack)
		}
	}
}

func lacking(need string) string {
	root := ""
	if os.Getenv(envInside) != "root" {
		root = "not root in a private mount namespace"
	}
	switch need {
	case "root":
		return root
	case "loop":
		return cmp.Or(root, lackFile("/dev/loop-control"))
	case "ext4", "xfs":
		return cmp.Or(lacking("loop"), lackFilesystem(need), lackProgram("mkfs."+need))
	case "fuse":
		return cmp.Or(root, lackFile("/dev/fuse"))
	}
	return lackProgram(need)
}

func lackFile(name string) string {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err.Error()
	}
	f.Close()
	return ""
}

func lackFilesystem(name string) string {
	have := func() bool {
		list, err := os.ReadFile("/proc/filesystems")
		return err == nil && slices.Contains(strings.Fields(string(list)), name)
	}
	if !have() {
		_ = exec.Command("modprobe", "--quiet", name).Run() // the next line tells
	}
	if !have() {
		return "this kernel has no " + name
	}
	return ""
}

// lackProgram also looks where Debian keeps mkfs, outside an ordinary PATH.
func lackProgram(name string) string {
	if _, err := exec.LookPath(name); err == nil {
		return ""
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return ""
		}
	}
	return name + " is not installed"
}
