package mounter_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/pkg/mounter"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestMemory(t *testing.T) {
	testenv.Need(t, "mount")
	for name, tt := range map[string]struct {
		size    int64
		options []string
		want    []string // of both kinds
		size4k  int64
		mode    os.FileMode
		text    string // of an error
	}{
		"sized":      {size: 8 * testenv.MiB, want: []string{"rw", "size=8192k"}, size4k: 2048, mode: 0o777},
		"read-only":  {size: testenv.MiB, options: []string{"ro", "nosuid"}, want: []string{"ro", "nosuid"}, size4k: 256, mode: 0o777},
		"options":    {size: testenv.MiB, options: []string{"noexec", "nr_inodes=100"}, want: []string{"rw", "noexec", "nr_inodes=100"}, size4k: 256, mode: 0o777},
		"own mode":   {size: testenv.MiB, options: []string{"mode=0750"}, size4k: 256, mode: 0o750},
		"odd size":   {size: 4097, size4k: 2, mode: 0o777},
		"bad option": {options: []string{"nonsense=1"}, text: "Unknown parameter 'nonsense'"},
		"bad value":  {options: []string{"nr_inodes=x"}, text: "Bad value for 'nr_inodes'"},
		"bad flag":   {options: []string{"discard"}, text: "Unknown parameter 'discard'"},
	} {
		t.Run(name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, m *mounter.Mounter) {
				target := newTarget(t)
				err := m.Memory(t.Context(), tt.size, target, tt.options, nil)
				if tt.text != "" {
					requireMounts(t, target.Path(), 0)
					if m.Classic || os.Getenv(envOldKernel) != "" {
						tt.text = "invalid argument" // all that mount(2) can say
					}
					requireError(t, err, nil, tt.text, target.Path(), "tmpfs")
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer mustUnmount(t, target)
				mount, super := optionsAt(t, target.Path())
				for _, o := range tt.want {
					if !slices.Contains(mount, o) && !slices.Contains(super, o) {
						t.Errorf("mounted with %v and %v, want %s", mount, super, o)
					}
				}
				if got := size4k(t, target.Path()); got != tt.size4k {
					t.Errorf("%d blocks of 4 KiB, want %d", got, tt.size4k)
				}
				if st, err := os.Stat(target.Path()); err != nil || st.Mode().Perm() != tt.mode {
					t.Errorf("mode %v, want %v (%v)", st.Mode().Perm(), tt.mode, err)
				}
			})
		})
	}
}

func size4k(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks) * st.Bsize / 4096
}

func TestMemoryResize(t *testing.T) {
	testenv.Need(t, "mount")
	eachWay(t, func(t *testing.T, m *mounter.Mounter) {
		target := newTarget(t)
		if err := m.Memory(t.Context(), testenv.MiB, target, []string{"nosuid", "noexec", "nr_inodes=100"}, nil); err != nil {
			t.Fatal(err)
		}
		defer mustUnmount(t, target)
		mustWrite(t, filepath.Join(target.Path(), "file"), "content")
		for _, tt := range []struct{ to, want int64 }{
			{2 * testenv.MiB, 512},
			{2 * testenv.MiB, 512}, // again
			{4097 * 1024, 1025},
			{testenv.MiB, 1025}, // never less
		} {
			if err := m.ResizeMemory(t.Context(), tt.to, target); err != nil {
				t.Fatal(err)
			}
			if got := size4k(t, target.Path()); got != tt.want {
				t.Errorf("%d blocks after growing to %d, want %d", got, tt.to, tt.want)
			}
		}
		mount, super := optionsAt(t, target.Path())
		for _, o := range []string{"rw", "nosuid", "noexec", "nr_inodes=100"} {
			if !slices.Contains(mount, o) && !slices.Contains(super, o) {
				t.Errorf("mounted with %v and %v after growing, want %s", mount, super, o)
			}
		}
		if got := mustRead(t, filepath.Join(target.Path(), "file")); got != "content" {
			t.Errorf("content is %q", got)
		}
	})
}

func TestMemoryResizeOfOther(t *testing.T) {
	testenv.Need(t, "mount")
	var m mounter.Mounter
	target := newTarget(t)
	requireError(t, m.ResizeMemory(t.Context(), testenv.MiB, target), nil, "resize", target.Path(), "not mounted")
	if err := m.Bind(t.Context(), newDir(t), anywhere(), target, nil, nil); err != nil {
		t.Fatal(err)
	}
	defer mustUnmount(t, target)
	requireError(t, m.ResizeMemory(t.Context(), testenv.MiB, target), nil, "resize", target.Path(), "not a tmpfs")
}
