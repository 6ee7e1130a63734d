package mounter_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// secret is one that no shell, option list or URL leaves as it is.
const secret = "s3cr3t,ro=%41 \"'$(id)\n\\x"

// helper installs a program mount.<name> for the test, which gets the
// arguments of mount(8): $1 source, $2 target, -o $options. This kernel has no
// network filesystem; all that is faked is the server and the program's manners.
// It returns the directory that the script knows as $dir.
//
// mount(8) looks for such programs in /sbin and nowhere else, so an overlay
// lies over that, in the private mount namespace that all tests here are in.
func helper(t *testing.T, name, script string) (dir string) {
	t.Helper()
	testenv.Need(t, "root", "mount", "prog:mount")
	dir = newDir(t)
	sbin, err := filepath.EvalSymlinks("/sbin")
	if err != nil {
		t.Fatal(err)
	}
	mustMkdir(t, dir+"/upper")
	mustMkdir(t, dir+"/work")
	if err := unix.Mount("overlay", sbin, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", sbin, dir, dir)); err != nil {
		t.Fatalf("lay mount.%s into %s: %v", name, sbin, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(sbin, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	text := "#!/bin/sh\ndir=" + dir + "\nsource=$1 target=$2\nshift 2\n" +
		"while [ $# -gt 0 ]; do case $1 in -o) options=$2; shift;; esac; shift; done\n" +
		"option() { echo \"$options\" | tr , '\\n' | sed -n \"s/^$1=//p\"; }\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(sbin, "mount."+name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

const mountIt = `mount -i -t tmpfs -o "${1:-rw}" "$source" "$target"` + "\n"

func TestRemoteCredentials(t *testing.T) {
	dir := helper(t, "flextest", `
		file=$(option credentials)
		cat "$file" >$dir/content
		cat "$file" >>$dir/content            # may be read again
		stat -L -c %a:%u "$file" >$dir/mode
		echo "$file" >$dir/path
		echo "$source|$options" >$dir/arguments
		for pid in $$ $PPID; do cat /proc/$pid/cmdline /proc/$pid/environ; done >$dir/seen
		env >>$dir/seen
		`+mountIt)
	var m mounter.Mounter
	target := newTarget(t)
	r := mounter.Remote{
		Source: "//server/my share", FSType: "flextest", Options: []string{"vers=3.0", `x="a,b"`, "nosuid"},
		Credentials: map[string][]byte{"credentials": []byte(secret)},
	}
	if err := m.MountRemote(t.Context(), r, target); err != nil {
		t.Fatal(err)
	}
	defer mustUnmount(t, target)
	if got := mustRead(t, dir+"/content"); got != secret+secret {
		t.Errorf("the credentials are %q", got)
	}
	if got := mustRead(t, dir+"/mode"); got != "600:0\n" {
		t.Errorf("the file has mode and owner %s", got)
	}
	path := strings.TrimSpace(mustRead(t, dir+"/path"))
	if path != "/proc/self/fd/3" {
		t.Errorf("the credentials are at %s", path)
	}
	if got, want := mustRead(t, dir+"/arguments"), `//server/my share|rw,nosuid,vers=3.0,x="a,b",credentials=`+path+"\n"; got != want {
		t.Errorf("the helper was called with %s, want %s", got, want)
	}
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	utab, _ := os.ReadFile("/run/mount/utab") // need not exist
	for where, text := range map[string]string{"arguments or environment": mustRead(t, dir+"/seen"), "mount table": string(table), "utab": string(utab)} {
		if strings.Contains(text, "s3cr3t") {
			t.Errorf("the secret is in the %s", where)
		}
	}
}

func TestRemoteFails(t *testing.T) {
	const occupied = "occupied"
	for name, tt := range map[string]struct {
		script   string
		readOnly bool
		kind     error
		texts    []string
	}{
		"without mounting":       {script: "exit 0", texts: []string{"verify mount", "reported success, and nothing is mounted"}},
		"with a message":         {script: "echo 'mount error(13): permission denied' >&2\necho see the manual\nexit 32", texts: []string{"mount error(13): permission denied; see the manual", "exit status 32"}},
		"after mounting":         {script: mountIt + "exit 1", texts: []string{"exit status 1"}},
		"mounts writable":        {script: mountIt, readOnly: true, texts: []string{"verify mount", "it should be read-only and is writable"}},
		"ends by a signal":       {script: mountIt + "kill -9 $$", texts: []string{"mount "}},
		"removes the mountpoint": {script: "rmdir $target", texts: []string{"nothing is mounted"}},
		"talks too much":         {script: "yes nonsense | head -c 5000000; echo the end; exit 2", texts: []string{"the end"}},
	} {
		t.Run(name, func(t *testing.T) {
			helper(t, "flextest", tt.script)
			target := newTarget(t)
			r := mounter.Remote{Source: "server:/export", FSType: "flextest", ReadOnly: tt.readOnly, Options: []string{"password=hidden"}}
			err := (&mounter.Mounter{}).MountRemote(t.Context(), r, target)
			requireError(t, err, tt.kind, append(tt.texts, "server:/export", "(flextest)", target.Path(), "password=[redacted]", "!hidden")...)
			if len(err.Error()) > 20<<10 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			requireMounts(t, target.Path(), 0)
		})
	}
	t.Run(occupied, func(t *testing.T) {
		dir := helper(t, "flextest", "touch $dir/called; exit 1")
		var m mounter.Mounter
		target := newTarget(t)
		if err := m.Memory(t.Context(), testenv.MiB, target, nil, nil); err != nil {
			t.Fatal(err)
		}
		defer mustUnmount(t, target)
		err := m.MountRemote(t.Context(), mounter.Remote{Source: "a", FSType: "flextest"}, target)
		requireError(t, err, mounter.ErrOccupied, "tmpfs")
		requireMounts(t, target.Path(), 1) // which was not ours to take back
		if _, err := os.Stat(dir + "/called"); !errors.Is(err, fs.ErrNotExist) {
			t.Error("the helper was called all the same")
		}
	})
}

func TestRemoteReadOnly(t *testing.T) {
	for name, script := range map[string]string{
		"the mount":      `mount -i -t tmpfs -o "$options" "$source" "$target"`,
		"the filesystem": `mount -i -t tmpfs -o ro "$source" "$target" && mount -i -o remount,bind,rw "$target"`,
	} {
		t.Run(name, func(t *testing.T) {
			helper(t, "flextest", script)
			target := newTarget(t)
			if err := (&mounter.Mounter{}).MountRemote(t.Context(), mounter.Remote{Source: "a", FSType: "flextest", ReadOnly: true}, target); err != nil {
				t.Fatal(err)
			}
			requireWritable(t, target.Path(), false)
			mustUnmount(t, target)
		})
	}
}

// A program that stays, as FUSE programs do, and writes later to what was its
// stdout: no caller waits for it, and its writes do not kill it.
func TestRemoteLeavesDaemon(t *testing.T) {
	dir := helper(t, "flextest", mountIt+`
		mkfifo $dir/go
		( read word <$dir/go
		  echo "late words"; echo "late words" >&2
		  head -c 1000000 /dev/zero
		  echo "$word $?" >$dir/done.new; mv $dir/done.new $dir/done ) &
		echo $! >$dir/pid
		`)
	var m mounter.Mounter
	target := newTarget(t)
	if err := m.MountRemote(t.Context(), mounter.Remote{Source: "a", FSType: "flextest"}, target); err != nil {
		t.Fatal(err) // or it would wait for the daemon, which waits for the test
	}
	defer mustUnmount(t, target)
	mustWriteTo(t, dir+"/go", "word\n")
	eventually(t, "the daemon has written and lives on", func() bool {
		_, err := os.Stat(dir + "/done")
		return err == nil
	})
	if got := mustRead(t, dir+"/done"); got != "word 1\n" { // head cannot write: no memory is filled
		t.Errorf("the daemon came to %q", got)
	}
}

func mustWriteTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(text)
	if err := firstOf(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// A helper that does not come back is ended at the deadline, with all that it
// started; a mount that it made meanwhile goes as well.
func TestRemoteHangs(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		kept   string // a file that it may make when it is told to end
	}{
		"in order":          {script: `trap 'touch $dir/ended; exit 1' TERM`, kept: "ended"},
		"deaf":              {script: `trap '' TERM`},
		"deaf with a mount": {script: `trap '' TERM` + "\n" + mountIt},
	} {
		t.Run(name, func(t *testing.T) {
			dir := helper(t, "flextest", tt.script+`
				echo $$ >$dir/pids
				sleep 60 & echo $! >>$dir/pids
				mv $dir/pids $dir/pid
				while :; do wait; done`)
			target := newTarget(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			go func() {
				defer cancel(context.DeadlineExceeded)
				eventually(t, "the helper hangs", func() bool { _, err := os.Stat(dir + "/pid"); return err == nil })
			}()
			err := (&mounter.Mounter{}).MountRemote(ctx, mounter.Remote{Source: "server:/export", FSType: "flextest"}, target)
			requireError(t, err, context.DeadlineExceeded, "server:/export", target.Path(), "was ended")
			requireMounts(t, target.Path(), 0)
			for pid := range strings.FieldsSeq(mustRead(t, dir+"/pid")) {
				eventually(t, "process "+pid+" is gone", func() bool { return !runs(pid) })
			}
			if tt.kept != "" {
				if _, err := os.Stat(filepath.Join(dir, tt.kept)); err != nil {
					t.Errorf("the helper had no time to end in good order: %v", err)
				}
			}
		})
	}
}

// runs is false for a process that is gone, or dead and not collected.
func runs(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestRemoteWithoutHelper(t *testing.T) {
	testenv.Need(t, "mount")
	for name, tt := range map[string]struct {
		r     mounter.Remote
		texts []string
	}{
		"unknown type":       {mounter.Remote{Source: "server:/a", FSType: "nonesuch"}, []string{`knows no filesystem "nonesuch"`, "program mount.nonesuch", "is not installed on this node (looked in /sbin:"}},
		"with credentials":   {mounter.Remote{Source: "//s/a", FSType: "nonesuch", Credentials: map[string][]byte{"credentials": []byte(secret)}}, []string{"mount.nonesuch, which would take the credentials, is not installed on this node (looked in /sbin:", "!s3cr3t"}},
		"kernel's own words": {mounter.Remote{Source: "a", FSType: "overlay", Options: []string{"nonsense=1"}}, []string{"overlay: Unknown parameter 'nonsense'", "program mount.overlay"}},
		"source is a dash":   {mounter.Remote{Source: "-o", FSType: "tmpfs"}, []string{"looks like an option"}},
		"type is a dash":     {mounter.Remote{Source: "a", FSType: "-t"}, []string{"looks like an option"}},
		"type is a path":     {mounter.Remote{Source: "a", FSType: "../bin/sh"}, []string{"looks like an option"}},
		"no type":            {mounter.Remote{Source: "a", FSType: ""}, []string{"looks like an option"}},
	} {
		t.Run(name, func(t *testing.T) {
			target := newTarget(t)
			err := (&mounter.Mounter{}).MountRemote(t.Context(), tt.r, target)
			requireError(t, err, nil, append(tt.texts, target.Path())...)
			requireMounts(t, target.Path(), 0)
		})
	}
	t.Run("the kernel can", func(t *testing.T) {
		eachWay(t, func(t *testing.T, m *mounter.Mounter) {
			target := newTarget(t)
			if err := m.MountRemote(t.Context(), mounter.Remote{Source: "a", FSType: "ramfs", ReadOnly: true, Options: []string{"nosuid"}}, target); err != nil {
				t.Fatal(err)
			}
			requireWritable(t, target.Path(), false)
			mustUnmount(t, target)
		})
	})
}

// mount.fuse serves all the types fuse.<program>. Its program stays, and so inherits no
// file with credentials: the one that it reads ends with the mount.
func TestRemoteFUSE(t *testing.T) {
	dir := helper(t, "fuse", `echo "$0 $source $target $options" >$dir/called
		option passwd_file >$dir/path; cat "$(option passwd_file)" >$dir/content; ls -l /proc/$$/fd >$dir/fds
		`+mountIt)
	var m mounter.Mounter
	target := newTarget(t)
	r := mounter.Remote{Source: "user@host:/", FSType: "fuse.flextest", Credentials: map[string][]byte{"passwd_file": []byte(secret)}}
	if err := m.MountRemote(t.Context(), r, target); err != nil {
		t.Fatal(err)
	}
	defer mustUnmount(t, target)
	if got := mustRead(t, dir+"/called"); !strings.Contains(got, "mount.fuse user@host:/ "+target.Path()) {
		t.Errorf("called: %s", got)
	}
	if got := mustRead(t, dir+"/content"); got != secret {
		t.Errorf("the credentials are %q", got)
	}
	if fds := mustRead(t, dir+"/fds"); strings.Contains(fds, "memfd:credentials") {
		t.Errorf("the program keeps the credentials: %s", fds)
	}
	path := strings.TrimSpace(mustRead(t, dir+"/path"))
	if link, err := os.Readlink(path); err == nil && strings.Contains(link, "credentials") {
		t.Errorf("%s is still there: %s", path, link)
	}
}

// No descriptor of this process is left with a helper, and none of the
// helper's with this process.
func TestRemoteDescriptors(t *testing.T) {
	dir := helper(t, "flextest", `ls -l /proc/$$/fd >$dir/fds; `+mountIt)
	count := func() int {
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	var m mounter.Mounter
	target := newTarget(t)
	before := 0
	for range 3 {
		if err := m.MountRemote(t.Context(), mounter.Remote{Source: "a", FSType: "flextest", Credentials: map[string][]byte{"k": []byte("v")}}, target); err != nil {
			t.Fatal(err)
		}
		mustUnmount(t, target)
		if before == 0 {
			before = count() // the first call may open what Go keeps
		}
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors, %d before", after, before)
	}
	for line := range strings.Lines(mustRead(t, dir+"/fds")) {
		fields := strings.Fields(line)
		if len(fields) < 11 {
			continue
		}
		fd, to := fields[len(fields)-3], fields[len(fields)-1]
		n, err := strconv.Atoi(fd)
		if err != nil || n <= 2 || strings.Contains(line, "memfd:credentials") || strings.Contains(to, "mount.flextest") || strings.HasPrefix(to, "/proc/") {
			continue // the script itself, and ls
		}
		if was, err := os.Readlink("/proc/self/fd/" + fd); err != nil || was != to {
			t.Errorf("the helper has descriptor %s, %s", fd, to) // else go test left it to us
		}
	}
}
