package mounter

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestSplitOptions(t *testing.T) {
	for in, want := range map[string][]string{
		"":                              nil,
		",, ,":                          nil,
		"ro":                            {"ro"},
		"ro,noatime":                    {"ro", "noatime"},
		" ro , noatime,":                {"ro", "noatime"},
		`context="a:b:c:s0:c1,c2",ro`:   {`context="a:b:c:s0:c1,c2"`, "ro"},
		`a="1,2",b="3,4"`:               {`a="1,2"`, `b="3,4"`},
		`a=",,",b`:                      {`a=",,"`, "b"},
		`a="never closed,b`:             {`a="never closed,b`},
		"password=a=b":                  {"password=a=b"},
		"\xff,ä":                        {"\xff", "ä"},
		"a\t,\nb":                       {"a", "b"},
		strings.Repeat("x", 5000) + ",": {strings.Repeat("x", 5000)},
	} {
		if diff := cmp.Diff(want, SplitOptions(in)); diff != "" {
			t.Errorf("SplitOptions(%q) (-want +got):\n%s", in, diff)
		}
	}
}

func FuzzSplitOptions(f *testing.F) {
	for _, s := range []string{"", "ro,noatime", `context="a:b:s0:c1,c2",ro`, `a="b`, `"",","`, " x , y ", "a==b,=c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parts := SplitOptions(s)
		for _, p := range parts {
			if p == "" || p != strings.TrimSpace(p) {
				t.Errorf("%q: part %q", s, p)
			}
			if !strings.Contains(s, p) {
				t.Errorf("%q: part %q is not in it", s, p)
			}
			if bare := strings.Split(p, `"`); strings.Contains(bare[0], ",") {
				t.Errorf("%q: part %q has a comma that no quotes protect", s, p)
			}
		}
		// Who joins them again and splits them gets the same.
		if strings.Count(s, `"`)%2 == 0 {
			if again := SplitOptions(strings.Join(parts, ",")); !slices.Equal(again, parts) {
				t.Errorf("%q: %q, and again %q", s, parts, again)
			}
		}
		o := parseOptions(parts)
		if len(o.fs) > len(parts) {
			t.Errorf("%q: %d options became %d", s, len(parts), len(o.fs))
		}
		o.classicFlags()
	})
}

func TestParseOptions(t *testing.T) {
	for in, want := range map[string]mountOptions{
		"":                               {},
		"ro":                             {readOnly: true},
		"ro,rw":                          {},
		"nosuid,nodev,noexec":            {attrs: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC},
		"nosuid,suid,nodev,dev":          {},
		"noexec,exec,noexec":             {attrs: unix.MOUNT_ATTR_NOEXEC},
		"noatime,relatime":               {attrs: unix.MOUNT_ATTR_RELATIME},
		"relatime,noatime":               {attrs: unix.MOUNT_ATTR_NOATIME},
		"noatime,strictatime,nodiratime": {attrs: unix.MOUNT_ATTR_STRICTATIME | unix.MOUNT_ATTR_NODIRATIME},
		"nodiratime,diratime":            {},
		"nosymfollow":                    {attrs: unix.MOUNT_ATTR_NOSYMFOLLOW},
		"defaults,auto,noauto,user,nouser,users,owner,group,_netdev,nofail,comment=x,x-foo,x-bar=1,X-mount.mkdir": {},
		`data="journal",discard,a="b,c"`: {fs: []string{"data=journal", "discard", "a=b,c"}},
		"user=bob,username=bob":          {fs: []string{"username=bob"}},
	} {
		if diff := cmp.Diff(want, parseOptions(SplitOptions(in)), cmp.AllowUnexported(mountOptions{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
	}
}

func TestClassicFlags(t *testing.T) {
	for in, want := range map[string]struct {
		flags uintptr
		data  string
	}{
		"":                      {0, ""},
		"ro,nosuid,noatime":     {unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NOATIME, ""},
		"sync,dirsync,lazytime": {unix.MS_SYNCHRONOUS | unix.MS_DIRSYNC | unix.MS_LAZYTIME, ""},
		"nodev,noexec,nodiratime,nosymfollow": {
			unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NODIRATIME | unix.MS_NOSYMFOLLOW, "",
		},
		"discard,commit=5,sync": {unix.MS_SYNCHRONOUS, "discard,commit=5"},
		// Without its quotes the kernel takes the comma of a label for the end of it.
		`context="u:r:t:s0:c1,c2",discard`: {0, `context="u:r:t:s0:c1,c2",discard`},
		"rootcontext=u:r:t:s0":             {0, `rootcontext="u:r:t:s0"`},
	} {
		flags, data := parseOptions(SplitOptions(in)).classicFlags()
		if flags != want.flags || data != want.data {
			t.Errorf("%s: flags %#x, data %s, want %#x, %s", in, flags, data, want.flags, want.data)
		}
	}
}
