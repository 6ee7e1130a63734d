package mounter

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/allow"
)

func split(t *testing.T, s string) []string {
	t.Helper()
	options, err := allow.SplitOptions(s)
	if err != nil {
		t.Fatal(err)
	}
	return options
}

func FuzzParseOptions(f *testing.F) {
	f.Add("ro", `context="a:b:s0:c1,c2"`, "a==b")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		o := parseOptions([]string{a, b, c})
		if len(o.fs) > 3 {
			t.Errorf("%q %q %q: 3 options became %d", a, b, c, len(o.fs))
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
		if diff := cmp.Diff(want, parseOptions(split(t, in)), cmp.AllowUnexported(mountOptions{})); diff != "" {
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
		flags, data := parseOptions(split(t, in)).classicFlags()
		if flags != want.flags || data != want.data {
			t.Errorf("%s: flags %#x, data %s, want %#x, %s", in, flags, data, want.flags, want.data)
		}
	}
}
