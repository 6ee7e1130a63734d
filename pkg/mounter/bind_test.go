package mounter_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestBind(t *testing.T) {
	testenv.Need(t, "mount")
	for name, tt := range map[string]struct {
		options  []string
		writable bool
		want     []string // of the mount's options
	}{
		"read-write":      {writable: true, want: []string{"rw"}},
		"read-only":       {options: []string{"ro"}, want: []string{"ro"}},
		"last one wins":   {options: []string{"ro", "rw"}, writable: true, want: []string{"rw"}},
		"nosuid":          {options: []string{"nosuid"}, writable: true, want: []string{"rw", "nosuid"}},
		"all of them":     {options: []string{"ro", "nosuid", "nodev", "noexec", "noatime", "nodiratime"}, want: []string{"ro", "nosuid", "nodev", "noexec", "noatime", "nodiratime"}},
		"for mount(8)":    {options: []string{"defaults", "_netdev", "nofail", "x-systemd.automount"}, writable: true, want: []string{"rw"}},
		"not nosuid":      {options: []string{"nosuid", "suid"}, writable: true, want: []string{"rw"}},
		"strictatime, ro": {options: []string{"strictatime", "ro"}, want: []string{"ro"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, m *mounter.Mounter) {
				// A mount of our own: the flags of others are locked in a user namespace.
				memory, target := newTarget(t), newTarget(t)
				if err := m.Memory(t.Context(), testenv.MiB, memory, nil, nil); err != nil {
					t.Fatal(err)
				}
				defer mustUnmount(t, memory)
				source := memory.Path()
				mustWrite(t, filepath.Join(source, "file"), "content")
				if err := m.Bind(t.Context(), source, anywhere(), target, tt.options, nil); err != nil {
					t.Fatal(err)
				}
				defer mustUnmount(t, target)
				if got := mustRead(t, filepath.Join(target.Path(), "file")); got != "content" {
					t.Errorf("content is %q", got)
				}
				requireWritable(t, target.Path(), tt.writable)
				requireWritable(t, source, true) // whatever the mount is
				got, _ := optionsAt(t, target.Path())
				for _, o := range tt.want {
					if !slices.Contains(got, o) {
						t.Errorf("mounted with %v, want %s", got, o)
					}
				}
			})
		})
	}
}

// A mount(2) that remounts a bind read-only sets all flags, and so took
// nosuid and noexec away from a source that had them.
func TestBindKeepsFlagsOfSource(t *testing.T) {
	testenv.Need(t, "mount")
	eachWay(t, func(t *testing.T, m *mounter.Mounter) {
		source, target := newTarget(t), newTarget(t)
		if err := m.Memory(t.Context(), testenv.MiB, source, []string{"nosuid", "noexec", "nodev"}, nil); err != nil {
			t.Fatal(err)
		}
		defer mustUnmount(t, source)
		if err := m.Bind(t.Context(), source.Path(), anywhere(), target, []string{"ro"}, nil); err != nil {
			t.Fatal(err)
		}
		defer mustUnmount(t, target)
		got, _ := optionsAt(t, target.Path())
		for _, o := range []string{"ro", "nosuid", "noexec", "nodev"} {
			if !slices.Contains(got, o) {
				t.Errorf("mounted with %v, want %s", got, o)
			}
		}
	})
}

func TestBindRefuses(t *testing.T) {
	testenv.Need(t, "mount")
	root := newDir(t)
	allowed := filepath.Join(root, "allowed")
	mustMkdir(t, filepath.Join(allowed, "inside"))
	mustMkdir(t, filepath.Join(root, "outside"))
	mustMkdir(t, filepath.Join(root, "allowed-not"))
	mustWrite(t, filepath.Join(allowed, "file"), "")
	for link, to := range map[string]string{"escape": "../outside", "absolute": "/", "stay": "inside", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(allowed, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		source  string
		options []string
		kind    error
		text    string // "" for success
	}{
		"root itself":         {source: allowed},
		"below the root":      {source: allowed + "/inside"},
		"link that stays":     {source: allowed + "/stay"},
		"link that leaves":    {source: allowed + "/escape", kind: mounter.ErrUnsafePath, text: "leads out of"},
		"absolute link":       {source: allowed + "/absolute", kind: mounter.ErrUnsafePath, text: "leads out of"},
		"link to itself":      {source: allowed + "/loop", kind: mounter.ErrUnsafePath, text: "symbolic link"},
		"outside":             {source: root + "/outside", kind: mounter.ErrUnsafePath, text: "none of the allowed roots"},
		"beginning alike":     {source: root + "/allowed-not", kind: mounter.ErrUnsafePath, text: "none of the allowed roots"},
		"dots":                {source: allowed + "/../outside", kind: mounter.ErrUnsafePath, text: "not clean"},
		"relative":            {source: "inside", kind: mounter.ErrUnsafePath, text: "not absolute"},
		"empty":               {source: "", kind: mounter.ErrUnsafePath, text: "empty"},
		"newline":             {source: allowed + "/in\nside", kind: mounter.ErrUnsafePath, text: "control characters"},
		"missing":             {source: allowed + "/missing", kind: os.ErrNotExist, text: "no such file"},
		"a file":              {source: allowed + "/file", kind: unix.ENOTDIR, text: "not a directory"},
		"filesystem's option": {source: allowed + "/inside", options: []string{"nosuid", "discard"}, text: "a directory takes only options of the mount itself"},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, m *mounter.Mounter) {
				target := newTarget(t)
				if os.Getenv(envOldKernel) != "" && strings.Contains(name, "link") {
					// Without openat2 no link is good enough.
					tt.kind, tt.text = mounter.ErrUnsafePath, "symbolic link"
				}
				err := m.Bind(t.Context(), tt.source, mounter.Roots{Below: []string{"/nonexistent", allowed}}, target, tt.options, nil)
				if tt.text == "" {
					if err != nil {
						t.Fatal(err)
					}
					mustUnmount(t, target)
					return
				}
				requireError(t, err, tt.kind, tt.text, target.Path())
				requireMounts(t, target.Path(), 0)
			})
		})
	}
}

// What prepare does can be seen with the mount and not before; if it fails
// there is no mount.
func TestPrepare(t *testing.T) {
	testenv.Need(t, "mount")
	eachWay(t, func(t *testing.T, m *mounter.Mounter) {
		target := newTarget(t)
		broken := errors.New("broken on purpose")
		for _, fail := range []error{broken, nil} {
			err := m.Memory(t.Context(), testenv.MiB, target, nil, func(root *os.File) error {
				if !m.Classic {
					requireMounts(t, target.Path(), 0)
				}
				return firstOf(unix.Mkdirat(int(root.Fd()), "made", 0o700), fail)
			})
			if fail == nil {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := os.Stat(filepath.Join(target.Path(), "made")); err != nil {
					t.Error(err)
				}
				mustUnmount(t, target)
				continue
			}
			requireError(t, err, broken, "prepare mount", target.Path())
			requireMounts(t, target.Path(), 0)
		}
	})
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// A target that is gone, or is no directory, or already has a mount.
func TestTargetUnfit(t *testing.T) {
	testenv.Need(t, "mount")
	eachWay(t, func(t *testing.T, m *mounter.Mounter) {
		dir := newDir(t)
		mustWrite(t, filepath.Join(dir, "file"), "")
		mustMkdir(t, filepath.Join(dir, "dir"))
		if err := os.Symlink("dir", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]struct {
			kind error
			text string
		}{
			"missing": {unix.ENOENT, "the mount point is gone"},
			"file":    {mounter.ErrUnsafePath, "the mount point is no directory"},
			"link":    {mounter.ErrUnsafePath, "the mount point is "},
		} {
			for kind, mount := range map[string]func(*mounter.Target) error{
				"bind":   func(to *mounter.Target) error { return m.Bind(context.Background(), dir, anywhere(), to, nil, nil) },
				"memory": func(to *mounter.Target) error { return m.Memory(context.Background(), 0, to, nil, nil) },
			} {
				t.Run(name+" "+kind, func(t *testing.T) {
					target := openTarget(t, dir, filepath.Join(dir, name))
					requireError(t, mount(target), want.kind, want.text, target.Path())
					requireMounts(t, target.Path(), 0)
					requireMounts(t, filepath.Join(dir, "dir"), 0)
				})
			}
		}
	})
}

func TestOccupiedTarget(t *testing.T) {
	testenv.Need(t, "mount")
	eachWay(t, func(t *testing.T, m *mounter.Mounter) {
		source, target := newDir(t), newTarget(t)
		if err := m.Memory(t.Context(), testenv.MiB, target, nil, nil); err != nil {
			t.Fatal(err)
		}
		defer mustUnmount(t, target)
		mustWrite(t, filepath.Join(target.Path(), "first"), "")
		err := m.Bind(t.Context(), source, anywhere(), target, nil, nil)
		requireError(t, err, mounter.ErrOccupied, "tmpfs", target.Path())
		mustRead(t, filepath.Join(target.Path(), "first")) // is there still
		requireMounts(t, target.Path(), 1)
	})
}

// A driver that publishes where the kubelet wants the volume mounts it read-only, if
// at all, in a mount namespace of its own, and that does not propagate.
func TestMakeReadOnly(t *testing.T) {
	testenv.Need(t, "mount")
	for name, m := range map[string]*mounter.Mounter{"": {}, "classic": {Classic: true}} {
		t.Run(name, func(t *testing.T) {
			target, source := newTarget(t), newDir(t)
			mustMkdir(t, target.Path())
			if err := m.MakeReadOnly(t.Context(), target); err == nil {
				t.Error("the directory of the node was made read-only")
			}
			if err := errors.Join(unix.Mount("volume", source, "tmpfs", 0, ""), unix.Mount(source, target.Path(), "", unix.MS_BIND, "")); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := errors.Join(unix.Unmount(target.Path(), 0), unix.Unmount(source, 0)); err != nil {
					t.Error(err)
				}
			})
			for range 2 {
				if err := m.MakeReadOnly(t.Context(), target); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(target.Path(), "file"), nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("writing: %v", err)
			}
			mustWrite(t, filepath.Join(source, "file"), "")
		})
	}
}

// TestExampleDriver calls the driver of the example as the kubelet does.
func TestExampleDriver(t *testing.T) {
	testenv.Need(t, "mount")
	store := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(store, "a"), 0o755), os.Symlink("/etc", filepath.Join(store, "link"))); err != nil {
		t.Fatal(err)
	}
	target := newTarget(t)
	run := func(want flex.Status, args ...string) {
		t.Helper()
		if got := flex.Run(t.Context(), directories(store), args); got.Status != want {
			t.Errorf("%v: got %s: %s, want %s", args, got.Status, got.Message, want)
		}
	}
	for range 2 {
		run(flex.StatusSuccess, "mount", target.Path(), `{"kubernetes.io/readwrite":"ro","directory":"a"}`)
		requireWritable(t, target.Path(), false)
	}
	for range 2 {
		run(flex.StatusSuccess, "unmount", target.Path())
		if mounted, err := target.Mounted(); mounted || err != nil {
			t.Errorf("mounted %t, %v", mounted, err)
		}
	}
	run(flex.StatusFailure, "mount", target.Path(), `{"kubernetes.io/readwrite":"rw","directory":"link"}`)
}
