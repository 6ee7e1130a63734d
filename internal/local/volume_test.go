package local

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// options makes flex.Options from pairs of user options; fsType and ro stand
// for the kubelet's own keys. The pod is in one namespace.
func options(pairs ...string) flex.Options {
	o := flex.Options{User: map[string]string{}, PodNamespace: namespace}
	for i := 0; i < len(pairs); i += 2 {
		switch pairs[i] {
		case "fsType":
			o.FSType = pairs[i+1]
		case "ro":
			o.ReadOnly = pairs[i+1] == "true"
		default:
			o.User[pairs[i]] = pairs[i+1]
		}
	}
	return o
}

func TestParseVolume(t *testing.T) {
	for name, tt := range map[string]struct {
		in   flex.Options
		want Volume
	}{
		"image": {
			options("image", "/images/a.img"),
			Volume{Kind: kindImage, Source: "/images/a.img"},
		},
		"image with everything": {
			options("image", "/a,b c", "size", "1.5Gi", "fsType", "xfs", "mountOptions", "noatime, discard", "seLinuxContext", "u:r:t:s0:c1,c2"),
			Volume{Kind: kindImage, Source: "/a,b c", Size: 1610612736, FSType: "xfs", MountOptions: []string{"noatime", "discard", `context="u:r:t:s0:c1,c2"`}},
		},
		"device":             {options("device", "/dev/disk/by-id/x"), Volume{Kind: kindDevice, Source: "/dev/disk/by-id/x"}},
		"device by UUID":     {options("device", "UUID=1-2"), Volume{Kind: kindDevice, Source: "UUID=1-2"}},
		"device by PARTUUID": {options("device", "PARTUUID=1-2"), Volume{Kind: kindDevice, Source: "PARTUUID=1-2"}},
		"device, odd path":   {options("device", "/dev/a=b"), Volume{Kind: kindDevice, Source: "/dev/a=b"}},
		"source":             {options("source", "server:/export", "fsType", "nfs"), Volume{Kind: kindSource, Source: "server:/export", FSType: "nfs"}},
		"cifs with a secret file": {
			options("source", "//s/share", "fsType", "cifs", "mountOptions", "credentials=$(secretFile:cred),vers=3.0"),
			Volume{Kind: kindSource, Source: "//s/share", FSType: "cifs", MountOptions: []string{"credentials=$(secretFile:cred)", "vers=3.0"}},
		},
		"path":                {options("path", "/srv/data"), Volume{Kind: kindPath, Source: "/srv/data"}},
		"memory":              {options("medium", "memory"), Volume{Kind: kindMemory, Source: "memory", Size: defaultMemory}},
		"Memory, as emptyDir": {options("medium", "Memory", "size", "64Mi"), Volume{Kind: kindMemory, Source: "Memory", Size: 64 << 20}},
		"read-only":           {options("image", "/a", "ro", "true"), Volume{Kind: kindImage, Source: "/a", ReadOnly: true}},
		"read-only by option": {options("image", "/a", "mountOptions", "noatime,ro"), Volume{Kind: kindImage, Source: "/a", ReadOnly: true, MountOptions: []string{"noatime"}}},
		"rw does not win":     {options("image", "/a", "ro", "true", "mountOptions", "rw"), Volume{Kind: kindImage, Source: "/a", ReadOnly: true}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseVolume(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.MountOptions) == 0 {
				got.MountOptions = nil
			}
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// An operator reads each message at three in the morning: the golden file is there for
// reviewers.
func TestParseVolumeMessages(t *testing.T) {
	var b strings.Builder
	for _, o := range []flex.Options{
		options(),
		options("fsType", "ext4"),
		options("size", "1Gi", "img", "/a"),
		options("image", "/a", "device", "/dev/sdb"),
		options("image", "/a", "path", "/b", "medium", "memory", "source", "x", "device", "y"),
		options("image", ""),
		options("image", "a.img"),
		options("image", "/a/../b"),
		options("image", "/a/"),
		options("image", "//a"),
		options("image", "/"),
		options("image", "-rf"),
		options("image", "/a\nb"),
		options("image", "/a", "Size", "1Gi"),
		options("image", "/a", "mount-options", "noatime"),
		options("image", "/a", "mountOption", "noatime"),
		options("image", "/a", "fstype", "ext4"),
		options("image", "/a", "readOnly", "true"),
		options("image", "/a", "password", "hunter2"),
		options("image", "/a", "size", ""),
		options("image", "/a", "size", "10 GiB"),
		options("image", "/a", "size", "10GB"),
		options("image", "/a", "size", "-1Gi"),
		options("image", "/a", "size", "0"),
		options("image", "/a", "size", "8Ei"),
		options("image", "/a", "size", "100m"),
		options("image", "/a", "size", "10Mi", "fsType", "xfs"),
		options("image", "/a", "size", "10Mi", "fsType", "btrfs"),
		options("image", "/a", "fsType", "ntfs"),
		options("image", "/a", "fsType", "ext4 -F"),
		options("image", "/a", "fsType", "../x"),
		options("image", "/a", "mountOptions", "-o noatime"),
		options("image", "/a", "mountOptions", "noatime\nnosuid"),
		options("image", "/a", "mountOptions", `data="journal`),
		options("image", "/a", "mountOptions", "=x"),
		options("image", "/a", "mountOptions", "ro,rw"),
		options("image", "/a", "ro", "true", "mountOptions", "rw"),
		options("image", "/a", "mkfsOptions", "-L hunter2"),
		options("source", "emptydir/evil#x", "fsType", "fuse"),
		options("source", "emptydir/evil#x", "fsType", "fuse.sshfs"),
		options("source", "me@host:/", "fsType", "fuse.sshfs", "mountOptions", "ssh_command=evil,ProxyCommand=evil,setuid=evil"),
		options("source", "//s/x", "fsType", "cifs", "mountOptions", "credentials=/etc/shadow,cred=hunter2"),
		options("source", "server:/x", "fsType", "nfs", "mountOptions", `vers="4,loop=x",context="u:r:t:s0:c1,c2"`),
		options("source", "overlay", "fsType", "overlay", "mountOptions", "lowerdir=/etc:/usr"),
		options("source", "none", "fsType", "devtmpfs"),
		options("source", "/etc", "fsType", "nfs", "mountOptions", "bind"),
		options("source", "s:/x", "fsType", "nfs", "mountOptions", "X-mount.mkdir,helper=x"),
		options("source", "//s/x", "fsType", "cifs", "mountOptions", "username=me%hunter2"),
		options("source", "https://me:hunter2@s/x", "fsType", "davfs"),
		options("image", "/a", "seLinuxContext", `u:r:"t`),
		options("image", "/a", "seLinuxContext", "nonsense"),
		options("device", ""),
		options("device", "sdb"),
		options("device", "/dev/../etc/passwd"),
		options("device", "LABEL=data"),
		options("device", "/dev/disk/by-label/data"),
		options("device", "UUID="),
		options("device", "UUID=../../etc"),
		options("device", "uuid=1-2"),
		options("device", "ID=usb-stick"),
		options("device", "UUID=a\x00b"),
		options("device", "/dev/sdb", "size", "1Gi"),
		options("device", "/dev/sdb", "fsType", "zfs"),
		options("source", "server:/x"),
		options("source", "", "fsType", "nfs"),
		options("source", "-o exec", "fsType", "nfs"),
		options("source", "/dev/sdb", "fsType", "ext4"),
		options("source", "server:/x", "fsType", "nfs", "size", "1Gi"),
		options("source", "//s/x", "fsType", "cifs", "mountOptions", "username=u,password=hunter2"),
		options("source", "//s/x", "fsType", "cifs", "mountOptions", "password2=hunter2,pass=hunter2"),
		options("source", "mon:/", "fsType", "ceph", "mountOptions", "secret=hunter2"),
		options("source", "//s/x", "fsType", "cifs", "mountOptions", "password=$(secretFile:p"),
		options("source", "//s/x", "fsType", "cifs", "mountOptions", "credentials=$(secretFile:)"),
		options("source", "server:/x", "fsType", "-t"),
		options("source", "server:/x", "fsType", "a/b"),
		options("source", "//s/x", "fsType", "cifs", "mountOptions", "username=u%hunter2"),
		options("source", "https://u:hunter2@server/dav", "fsType", "davfs"),
		options("source", "overlay", "fsType", "overlay", "mountOptions", "lowerdir=/etc,upperdir=/tmp"),
		options("source", "/etc", "fsType", "none", "mountOptions", "bind"),
		options("source", "server:/x", "fsType", "nfs", "mountOptions", "X-mount.mkdir,loop=/dev/loop0,helper=sh"),
		options("path", ""),
		options("path", "relative"),
		options("path", "/srv", "fsType", "ext4"),
		options("path", "/srv", "size", "1Gi"),
		options("medium", ""),
		options("medium", "ssd"),
		options("medium", "memory", "fsType", "ext4"),
		options("medium", "memory", "size", "many"),
		options("medium", "memory", "image", "/a"),
		options("image", "relative", "size", "x", "fsType", "ntfs", "nonsense", "1", "mountOptions", "-x"),
	} {
		_, err := parseVolume(o)
		text, marshalErr := json.Marshal(userOf(o))
		if marshalErr != nil {
			t.Fatal(marshalErr)
		}
		if err == nil {
			fmt.Fprintf(&b, "%s\n\t(accepted)\n", text)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("a secret is in %q", err)
		}
		if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
			t.Errorf("control characters are in %q", err)
		}
		if code := flex.CodeOf(err); code != flex.CodeInvalidArgument {
			t.Errorf("%q has code %s", err, code)
		}
		fmt.Fprintf(&b, "%s\n\t%v\n", text, err)
	}
	golden(t, "messages.golden", b.String())
}

// userOf is what the user wrote, for people.
func userOf(o flex.Options) map[string]string {
	m := maps.Clone(o.User)
	if o.FSType != "" {
		m["kubernetes.io/fsType"] = o.FSType
	}
	if o.ReadOnly {
		m["kubernetes.io/readwrite"] = "ro"
	}
	return m
}

// All faults are named at once, and always in the same order.
func TestParseVolumeNamesAll(t *testing.T) {
	o := options("image", "relative", "size", "x", "fsType", "ntfs", "b", "1", "a", "2", "mountOptions", "-x,-y")
	_, first := parseVolume(o)
	for _, part := range []string{`"a"`, `"b"`, "relative", "size", "ntfs", `"-x"`, `"-y"`} {
		if !strings.Contains(first.Error(), part) {
			t.Errorf("%q does not name %s", first, part)
		}
	}
	for range 20 {
		if _, err := parseVolume(o); err.Error() != first.Error() {
			t.Fatalf("%q, and then %q", first, err)
		}
	}
}

func FuzzParseVolume(f *testing.F) {
	f.Add("image", "/a", "size", "1Gi", "ext4", false)
	f.Add("device", "UUID=1", "mkfsOptions", "-F", "", true)
	f.Add("source", "//s/x", "mountOptions", `credentials=$(secretFile:c),x="a,b",ro`, "cifs", false)
	f.Add("path", "/x/../y", "nonsense", "\x00", "tmpfs", true)
	f.Add("medium", "memory", "medium", "Memory", "", false)
	f.Add("", "", "", "", "\xff", false)
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2, fsType string, readOnly bool) {
		o := flex.Options{FSType: fsType, ReadOnly: readOnly, User: map[string]string{k1: v1, k2: v2}}
		v, err := parseVolume(o)
		if err != nil {
			if v != nil || flex.CodeOf(err) != flex.CodeInvalidArgument {
				t.Errorf("volume %v with error %v (%s)", v, err, flex.CodeOf(err))
			}
			return
		}
		if o.User[string(v.Kind)] != v.Source || v.Source == "" || v.Source[0] == '-' {
			t.Errorf("%s is %q", v.Kind, v.Source)
		}
		if readOnly && !v.ReadOnly {
			t.Error("a read-only volume became writable")
		}
		if slices.Contains(v.MountOptions, "ro") {
			t.Errorf("ro is among the options %q", v.MountOptions)
		}
		if strings.ContainsAny(v.Source+strings.Join(v.MountOptions, ","), "\x00\n\r") {
			t.Errorf("control characters got through: %+v", v)
		}
		if _, known := kinds()[v.Kind]; !known {
			t.Errorf("kind %q", v.Kind)
		}
	})
}
