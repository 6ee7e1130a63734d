package escape

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/trace"
)

// driverProgram is what finds call the driver.
const driverProgram = "flexdriver"

// programsByFile are those that the driver may run, by what their names lead to.
func programsByFile() map[string]stage {
	all := map[string]stage{}
	add := func(s stage, names ...string) {
		for _, name := range names {
			path, err := exec.LookPath(name)
			if err == nil {
				path, err = filepath.EvalSymlinks(path)
			}
			if err == nil {
				all[path] = s
			}
		}
	}
	add(looked, "blkid", "dumpe2fs", "xfs_io", "xfs_info")
	add(worked, "mkfs.ext4", "mkfs.ext3", "mkfs.xfs", "mkfs.btrfs", "fsck.ext4", "fsck.ext3", "fsck.xfs", "fsck.btrfs", "e2fsck", "resize2fs",
		"xfs_repair", "xfs_growfs", "xfs_db", "btrfs", "mount")
	return all
}

// Exec holds programs to the rules.
func (g *guard) Exec(p trace.Process) bool {
	exe := p.Link("exe")
	if g.stubs[p.PID] {
		return true
	}
	args := strings.Split(read(p, "cmdline"), "\x00")
	stub := len(args) > 1 && slices.Contains(g.w.stubs, args[1])
	s, known := g.w.programs[exe]
	if !known && !stub || stub && !g.driver.rooted {
		return g.bad(p, "executes %s (%s)", exe, strings.Join(args, " "))
	}
	g.programs[p.PID] = exe
	g.reach(max(s, looked))
	if stub {
		g.reach(worked)
		g.stubs[p.PID] = true
		if !g.mayBeCalled(p, args[1:]) {
			return false
		}
	}
	for _, arg := range args {
		if strings.HasPrefix(arg, "LABEL=") || strings.HasPrefix(arg, "PARTLABEL=") {
			return g.bad(p, "looks for a disk by what its owner calls it: %s", arg)
		}
	}
	if g.w.lenient { // of the programs' surroundings: to find what else there is
		return true
	}
	return g.hasNoSecrets(p) && g.isInEmptyDirectory(p) && g.hasFixedEnvironment(p) && g.hasNoFiles(p)
}

// mayBeCalled holds the arguments of mount.nfs and the like to the rules: those are not
// there to be watched.
func (g *guard) mayBeCalled(p trace.Process, args []string) bool {
	if len(args) < 3 || !g.isTarget(args[2]) {
		return g.bad(p, "calls %q for another mount point", args)
	}
	source, special := args[1], "#\"'`\\;|&<>"
	if name := filepath.Base(args[0]); !slices.Contains([]string{"mount.cifs", "mount.smb3", "mount.nfs", "mount.nfs4"}, name) {
		special += " " // shares alone may have blanks in their names
	}
	if strings.HasPrefix(source, "/") && !strings.HasPrefix(source, "//") || strings.ContainsAny(source, special) || !strings.Contains(source, "/") || source[0] == '-' || strings.Contains(source, "..") {
		return g.bad(p, "calls %s for the source %q", args[0], source)
	}
	for i, arg := range args[:len(args)-1] {
		if arg != "-o" {
			continue
		}
		for option := range strings.SplitSeq(args[i+1], ",") {
			_, value, _ := strings.Cut(option, "=")
			own, isOwn := strings.CutPrefix(value, "/proc/self/")
			if strings.Contains(value, "/") && !(isOwn && isCredentials(p.Link(own))) && !strings.HasPrefix(value, fmt.Sprintf("/proc/%d/fd/", g.leader)) {
				return g.bad(p, "calls %s with the option %s", args[0], option)
			}
		}
	}
	return true
}

func read(p trace.Process, name string) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.ID, name))
	return string(text)
}

// hasNoSecrets: everybody on the node can read the arguments of a process, those of the
// driver as well.
func (g *guard) hasNoSecrets(p trace.Process) bool {
	for _, process := range []trace.Process{p, {ID: g.leader, PID: g.leader}} {
		arguments := read(process, "cmdline")
		for key, secret := range g.secrets {
			if shows(arguments, secret) {
				return g.bad(process, "has the secret %s among its arguments", key)
			}
		}
	}
	return true
}

func (g *guard) isInEmptyDirectory(p trace.Process) bool {
	dir := fmt.Sprintf("/proc/%d/cwd/", p.ID)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		return g.bad(p, "has the working directory %s, which is not empty", p.Link("cwd"))
	}
	var fs unix.Statfs_t
	st, err := os.Stat(dir)
	if err = errors.Join(err, unix.Statfs(dir, &fs)); err != nil || st.Mode().Perm()&0o022 != 0 && fs.Flags&unix.ST_RDONLY == 0 {
		return g.bad(p, "has the working directory %s, where others may write", p.Link("cwd"))
	}
	return true
}

// hasFixedEnvironment: nothing of the environment that the driver was called with.
func (g *guard) hasFixedEnvironment(p trace.Process) bool {
	for variable := range strings.SplitSeq(strings.TrimSuffix(read(p, "environ"), "\x00"), "\x00") {
		name, value, _ := strings.Cut(variable, "=")
		if !slices.Contains([]string{"PATH", "LC_ALL", "HOME"}, name) || strings.Contains(value, g.w.dir) {
			return g.bad(p, "has %s in its environment", variable)
		}
	}
	return true
}

// hasNoFiles: no descriptors of the driver's are open in what it starts, but the credentials
// that its arguments name.
func (g *guard) hasNoFiles(p trace.Process) bool {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.ID))
	for _, e := range entries {
		link := p.Link("fd/" + e.Name())
		if isCredentials(link) && g.isNamed(p, "/proc/self/fd/"+e.Name()) {
			continue
		}
		if len(e.Name()) > 1 || e.Name() > "2" {
			return g.bad(p, "has %s open as descriptor %s", link, e.Name())
		}
	}
	return true
}

// isCredentials reports whether a descriptor is a file in memory of the driver's.
func isCredentials(link string) bool { return link == "/memfd:credentials (deleted)" }

// isNamed reports whether a mount option is a path.
func (g *guard) isNamed(p trace.Process, path string) bool {
	for argument := range strings.SplitSeq(read(p, "cmdline"), "\x00") {
		for option := range strings.SplitSeq(argument, ",") {
			if _, value, _ := strings.Cut(option, "="); value == path {
				return true
			}
		}
	}
	return false
}
