package mounter

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// describeUsers names who keeps a mount busy, as far as /proc and /sys tell:
// they show links and names only, so a hung filesystem does not block the call.
func describeUsers(path string) string {
	const most = 5
	users := loopsWithin(path)
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return ""
	}
	for _, proc := range entries {
		if len(users) >= most {
			users = append(users[:most:most], "and perhaps more")
			break
		}
		if use := useOf(proc, path); use != "" {
			comm, _ := os.ReadFile(proc + "/comm")
			users = append(users, fmt.Sprintf("%s (pid %s, %s)", strings.TrimSpace(string(comm)), filepath.Base(proc), use))
		}
	}
	if len(users) == 0 {
		return "; no process that can be seen from here uses it; a mount in another mount namespace may"
	}
	return "; used by " + strings.Join(users, ", ")
}

// useOf says what a process has to do with a path.
func useOf(proc, path string) string {
	uses := func(link string) bool {
		to, err := os.Readlink(link)
		return err == nil && below(path, to)
	}
	for _, l := range [...]struct{ name, use string }{{"cwd", "working directory"}, {"root", "root"}, {"exe", "program"}} {
		if uses(proc + "/" + l.name) {
			return l.use
		}
	}
	fds, _ := os.ReadDir(proc + "/fd")
	for _, fd := range fds {
		if uses(proc + "/fd/" + fd.Name()) {
			return "open file"
		}
	}
	return ""
}

// loopsWithin names the loop devices with images below path.
func loopsWithin(path string) (users []string) {
	devices, _ := filepath.Glob("/sys/block/loop*/loop")
	for _, dir := range devices {
		device := "/dev/" + filepath.Base(filepath.Dir(dir))
		if image := BackingFile(device); below(path, image) {
			users = append(users, fmt.Sprintf("%s (loop device of %s)", device, image))
		}
	}
	return users
}

// below reports whether path is dir or lies below it.
func below(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
