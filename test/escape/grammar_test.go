package escape

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A maker makes attempts from random numbers: the same from the same seed.
type maker struct {
	*rand.Rand
	w *world
}

func pick[T any](m *maker, from ...T) T { return from[m.IntN(len(from))] }

// often is true so many times out of a hundred.
func (m *maker) often(percent int) bool { return m.IntN(100) < percent }

// some joins up to n of a list.
func (m *maker) some(n int, separator string, from []string) string {
	var parts []string
	for range m.IntN(n + 1) {
		parts = append(parts, pick(m, from...))
	}
	return strings.Join(parts, separator)
}

// drivers, by their place in the world's list.
const (
	closed = iota
	rooted
	attaching
	served
	alone
	bare
	looseMode
	looseOwner
	looseDirectory
	otherParent
	otherLink
	aliased
)

// valid makes an attempt that is a volume as its author should write it.
func (m *maker) valid() *attempt {
	a := &attempt{
		options: map[string]string{}, driver: rooted, namespace: mine, pod: pick(m, "web-0", "a", "x.y-z", strings.Repeat("p", 253)),
		uid: ownPod, volume: pick(m, "data", "v", "mounts", "volumes", "pv-1.x", strings.Repeat("v", 63)), readOnly: m.often(20),
	}
	if m.often(3) {
		a.uid = pick(m, "pods", "volumes", "plugins", fmt.Sprintf("%032x", m.Uint64()), "u.v-w")
	}
	switch n := m.IntN(100); {
	case n < 40:
		m.image(a)
	case n < 60:
		m.device(a)
	case n < 78:
		m.path(a)
	case n < 90:
		m.source(a)
	default:
		m.memory(a)
	}
	if m.often(15) {
		a.secrets = map[string]string{"password": secretOf(m), "key": secretOf(m)}
	}
	if m.often(5) {
		a.options["seLinuxContext"] = "system_u:object_r:container_file_t:s0:c1,c2"
	}
	a.fsGroup = m.often(10)
	m.life(a)
	return a
}

func secretOf(m *maker) string { return fmt.Sprintf("hunter-%016x", m.Uint64()) }

func (m *maker) image(a *attempt) {
	a.kind, a.fsType = "image", pick(m, "", "ext4", "ext4", "ext3")
	a.options["image"] = m.w.images + "/" + mine + "/" + pick(m, "old-1.img", "old-2.img")
	if m.often(25) {
		a.kind = "image, new"
		a.options["image"] = fmt.Sprintf("%s/%s/new-%08x.img", m.w.images, mine, m.Uint32())
		a.options["size"] = pick(m, "8Mi", "6M", "9Mi", "8388608")
		a.fsType = pick(m, "ext4", "ext4", "ext4", "ext3", "")
		if m.often(4) {
			a.fsType, a.options["size"] = pick(m, "xfs", "btrfs"), "300Mi"
		}
	}
	m.mountOptions(a, validDiskOptions(a.fsType))
}

func (m *maker) device(a *attempt) {
	a.kind, a.fsType = "device", pick(m, "", "ext4")
	a.options["device"] = m.w.devicesDir + "/disk"
	if m.often(15) {
		a.options["device"] = "UUID=" + uuid(m.w.dir+"/disk.img")
	}
	m.mountOptions(a, validDiskOptions(a.fsType))
}

func (m *maker) path(a *attempt) {
	a.kind = "path"
	a.options["path"] = m.w.directories + pick(m, "/shared", "/shared/sub", "/"+mine)
	m.mountOptions(a, []string{"nosuid", "nodev", "noexec", "noatime", "nodiratime"})
}

func (m *maker) source(a *attempt) {
	a.kind, a.fsType = "source", pick(m, sourceTypes()...)
	a.options["source"] = pick(m, "server:/export", "10.0.0.1:/a/b", "[fd00::1]:/x")
	options := []string{"vers=4.1", "nfsvers=4", "hard", "timeo=600", "retrans=2", "rsize=1048576", "noatime", "proto=tcp", "sec=sys", "nolock"}
	if a.fsType == "cifs" {
		a.options["source"] = pick(m, "//server/share", "//server.example/a/b")
		options = []string{"vers=3.0", "uid=1000", "gid=1000", "file_mode=0640", "dir_mode=0750", "noperm", "nosharesock", "mfsymlinks", "cache=none"}
	}
	m.mountOptions(a, options)
}

func (m *maker) memory(a *attempt) {
	a.kind = "memory"
	a.options["medium"] = pick(m, "memory", "Memory")
	a.options["size"] = pick(m, "1Mi", "64Mi", "1Gi")
	m.mountOptions(a, []string{"nosuid", "nodev", "noexec", "mode=0755", "uid=1000"})
}

func (m *maker) mountOptions(a *attempt, known []string) {
	if m.often(60) {
		a.options["mountOptions"] = m.some(3, ",", known)
	}
}

func validDiskOptions(fsType string) []string {
	common := []string{"noatime", "nosuid", "nodev", "relatime", "sync", "ro"}
	switch fsType {
	case "xfs":
		return append(common, "discard", "logbufs=8", "inode64", "nouuid")
	case "btrfs":
		return append(common, "compress=zstd", "ssd", "space_cache=v2")
	}
	return append(common, "discard", "errors=remount-ro", "data=ordered", "commit=30", "barrier=1", "user_xattr")
}

// life chooses the callouts.
func (m *maker) life(a *attempt) {
	mount, device := flex.CommandMount, flex.CommandMountDevice
	a.calls = []flex.Command{mount}
	switch n := m.IntN(100); {
	case n < 80:
	case n < 84:
		a.calls = []flex.Command{mount, flex.CommandUnmount}
	case n < 87:
		a.driver, a.calls = attaching, []flex.Command{device, mount}
	case n < 90:
		a.driver, a.calls = attaching, []flex.Command{flex.CommandAttach, flex.CommandIsAttached, flex.CommandDetach}
	case n < 93:
		a.driver, a.calls = attaching, []flex.Command{flex.CommandWaitForAttach, device, flex.CommandUnmountDevice}
	case n < 96:
		a.calls = []flex.Command{flex.CommandExpandFS}
	case n < 98:
		a.calls = []flex.Command{flex.CommandExpandVolume}
	default:
		a.calls = []flex.Command{mount, flex.CommandExpandFS, mount}
	}
	switch n := m.IntN(100); {
	case n < 5:
		a.driver = closed
	case n < 8:
		a.driver = served
	case n < 10:
		a.driver = alone
	}
}
