package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { Main(m) }

// spyTB is a fake test that records its result.
type spyTB struct {
	testing.TB
	errors, logs []string
	fatal, skip  string
	cleanups     []func()
}

func (s *spyTB) Helper()                      {}
func (s *spyTB) Logf(f string, args ...any)   { s.logs = append(s.logs, fmt.Sprintf(f, args...)) }
func (s *spyTB) Errorf(f string, args ...any) { s.errors = append(s.errors, fmt.Sprintf(f, args...)) }
func (s *spyTB) Cleanup(f func())             { s.cleanups = append(s.cleanups, f) }
func (s *spyTB) Fatalf(f string, args ...any) { s.fatal = fmt.Sprintf(f, args...); runtime.Goexit() }
func (s *spyTB) Skipf(f string, args ...any)  { s.skip = fmt.Sprintf(f, args...); runtime.Goexit() }

// spy runs f as a test would be run, cleanups included.
func spy(t *testing.T, f func(testing.TB)) *spyTB {
	t.Helper()
	s := &spyTB{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for _, f := range slices.Backward(s.cleanups) {
				f()
			}
		}()
		f(s)
	}()
	<-done
	return s
}

func TestMainHidesMounts(t *testing.T) {
	Need(t, "mount")
	dir := t.TempDir()
	mustMount(t, dir)
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })

	if !mounted(t, os.Getpid(), dir) {
		t.Errorf("%s is not mounted in the test", dir)
	}
	// The parent is the process that go test started.
	if mounted(t, os.Getppid(), dir) {
		t.Errorf("%s is mounted outside the test as well", dir)
	}
	all, err := mountinfo.GetMounts(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.Optional != "" {
			t.Errorf("mount %s propagates: %q", m.Mountpoint, m.Optional)
		}
	}
}

// TestHelper is no test: it is what TestMainPassesOnTheExitStatus runs in a second process.
func TestHelper(t *testing.T) {
	switch os.Getenv("TESTENV_HELPER") {
	case "exit":
		os.Exit(7)
	case "signal":
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	case "fail":
		t.Error("as asked")
	}
}

func TestMainPassesOnTheExitStatus(t *testing.T) {
	for how, want := range map[string]int{"pass": 0, "fail": 1, "exit": 7, "signal": 128 + 9} {
		t.Run(how, func(t *testing.T) {
			if how == "signal" {
				Need(t, "mount") // without a namespace there is no process in between
			}
			cmd := exec.Command(os.Args[0], "-test.run=^TestHelper$")
			for _, kv := range os.Environ() {
				if !strings.HasPrefix(kv, "FLEX_TESTENV_") {
					cmd.Env = append(cmd.Env, kv)
				}
			}
			cmd.Env = append(cmd.Env, "TESTENV_HELPER="+how)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != want {
				t.Errorf("exit status %d, want %d; output:\n%s", got, want, out)
			}
		})
	}
}

func TestNeed(t *testing.T) {
	for _, tt := range []struct {
		name, require, need string
		wantSkip, wantFatal string
	}{
		{name: "there", need: "prog:sh"},
		{name: "absent", need: "prog:no-such", wantSkip: "needs prog:no-such: no-such is not installed"},
		{name: "absent, another required", require: "mount,loop", need: "prog:no-such", wantSkip: "needs prog:no-such"},
		{name: "absent, required", require: "mount,prog:no-such", need: "prog:no-such", wantFatal: "FLEX_TEST_REQUIRE=mount,prog:no-such"},
		{name: "absent, all required", require: "all", need: "prog:no-such", wantFatal: "no-such is not installed"},
		{name: "unknown", need: "luck", wantFatal: `unknown need "luck"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(EnvRequire, tt.require)
			s := spy(t, func(t testing.TB) { Need(t, tt.need) })
			if (tt.wantSkip == "") != (s.skip == "") || !strings.Contains(s.skip, tt.wantSkip) {
				t.Errorf("skip %q, want %q", s.skip, tt.wantSkip)
			}
			if (tt.wantFatal == "") != (s.fatal == "") || !strings.Contains(s.fatal, tt.wantFatal) {
				t.Errorf("fatal %q, want %q", s.fatal, tt.wantFatal)
			}
		})
	}
}

func TestNeedWithoutNamespace(t *testing.T) {
	t.Setenv(EnvRequire, "")
	t.Setenv(envReason, "no private mount namespace: not permitted")
	for _, need := range []string{"mount", "loop", "ext4", "fuse"} {
		if s := spy(t, func(t testing.TB) { Need(t, need) }); s.skip == "" {
			t.Errorf("Need(%q) did not skip", need)
		}
	}
}

func TestCondition(t *testing.T) {
	t.Setenv(EnvRequire, "")
	for _, tt := range []struct {
		require, need string
		want          bool
		wantErr       bool
	}{
		{need: "prog:sh", want: true},
		{need: "prog:no-such", want: false},
		{need: "prog:no-such", require: "all", wantErr: true},
		{need: "luck", wantErr: true},
	} {
		t.Setenv(EnvRequire, tt.require)
		got, err := Condition(tt.need)
		if got != tt.want || (err != nil) != tt.wantErr {
			t.Errorf("Condition(%q) with %s=%q = %v, %v", tt.need, EnvRequire, tt.require, got, err)
		}
	}
}

func TestLeakCheckFindsNothing(t *testing.T) {
	dir := t.TempDir()
	if s := spy(t, func(t testing.TB) { LeakCheck(t, dir) }); len(s.errors) > 0 {
		t.Errorf("errors in a clean directory: %q", s.errors)
	}
}

func TestLeakCheckMount(t *testing.T) {
	Need(t, "mount")
	dir := filepath.Join(t.TempDir(), "a b") // mountinfo escapes the space
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := spy(t, func(t testing.TB) {
		LeakCheck(t, dir)
		mustMount(t, dir)
		mustMount(t, dir)
	})
	if len(s.errors) != 2 || !strings.Contains(s.errors[0], "mount of tmpfs (tmpfs) on "+dir) {
		t.Errorf("errors %q, want two mounts on %s", s.errors, dir)
	}
	if mounted(t, os.Getpid(), dir) {
		t.Errorf("%s is still mounted", dir)
	}
}

func TestLeakCheckLoop(t *testing.T) {
	Need(t, "loop")
	var image string
	s := spy(t, func(spied testing.TB) {
		image = filepath.Join(t.TempDir(), "disk.img")
		if err := os.WriteFile(image, make([]byte, MiB), 0o600); err != nil {
			t.Fatal(err)
		}
		leakCheck(spied, filepath.Dir(image), 0)
		if out, err := exec.Command("losetup", "--find", image).CombinedOutput(); err != nil {
			t.Fatalf("losetup: %v: %s", err, out)
		}
	})
	if len(s.errors) != 1 || !strings.Contains(s.errors[0], image) {
		t.Errorf("errors %q, want the loop device on %s", s.errors, image)
	}
	if rest := leakedLoops(filepath.Dir(image)); len(rest) != 0 {
		t.Errorf("still attached: %s", rest[0].what)
	}
}

func TestLeakCheckProcess(t *testing.T) {
	dir := t.TempDir()
	var cmd *exec.Cmd
	s := spy(t, func(t testing.TB) {
		leakCheck(t, dir, 0)
		cmd = exec.Command("sleep", "60")
		cmd.Dir = dir
		if err := cmd.Start(); err != nil {
			t.Fatalf("%v", err)
		}
	})
	if want := "process " + strconv.Itoa(cmd.Process.Pid) + ": sleep 60"; len(s.errors) != 1 || !strings.Contains(s.errors[0], want) {
		t.Errorf("errors %q, want %q", s.errors, want)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("sleep ended with %v, want it killed", err)
	}
}

func TestImage(t *testing.T) {
	info, err := os.Stat(Image(t, 3*GiB))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() != 3*GiB {
		t.Errorf("size %d, want %d", info.Size(), 3*GiB)
	}
}

func TestKubelet(t *testing.T) {
	k := Kubelet(t)
	for _, tt := range []struct{ got, want string }{
		{k.PodVolumeDir("uid", "example.com/disk", "pv1"), k.Root + "/pods/uid/volumes/example.com~disk/pv1"},
		{k.DeviceMountPath("example.com/disk", "pv1"), k.Root + "/plugins/kubernetes.io/flexvolume/example.com/disk/mounts/pv1"},
		{filepath.Dir(k.DriverPath("example.com/disk")), k.PluginDir + "/example.com~disk"},
		{filepath.Base(k.DriverPath("example.com/disk")), "disk"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
	if info, err := os.Stat(k.PodVolumeDir("uid", "example.com/disk", "pv1")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("pod volume directory: %v, %v; want mode 0750", info, err)
	}
}

func mustMount(t testing.TB, dir string) {
	t.Helper()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatalf("mount tmpfs on %s: %v", dir, err)
	}
}

// mounted reports whether process pid sees a mount on dir.
func mounted(t *testing.T, pid int, dir string) bool {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found, err := mountinfo.GetMountsFromReader(f, mountinfo.SingleEntryFilter(dir))
	if err != nil {
		t.Fatal(err)
	}
	return len(found) > 0
}

func TestMentions(t *testing.T) {
	for text, want := range map[string]bool{
		"":                              false,
		"/tmp/a":                        true,
		"/tmp/a/b":                      true,
		"WORK=/tmp/a\x00HOME=/":         true,
		"--dir=/tmp/a,/tmp/c":           true,
		"/tmp/a_b":                      false,
		"/tmp/ab /tmp/a-b":              false,
		"/tmp/a.b":                      false,
		"/tmp/ab and then /tmp/a again": true,
	} {
		if got := mentions(text, "/tmp/a"); got != want {
			t.Errorf("mentions(%q) = %t, want %t", text, got, want)
		}
	}
}
