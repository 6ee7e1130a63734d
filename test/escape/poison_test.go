package escape

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// make makes the attempt with a number: a valid one, of which mostly one field is
// spoilt, at times two, and at times how it is written.
func (m *maker) make() *attempt {
	a := m.valid()
	kind := a.kind
	switch n := m.IntN(100); {
	case n < 8:
		a.kind = "valid " + kind
		return a
	case n < 20:
		a.kind = "odd " + kind
		m.odd(a)
		return a
	}
	if m.often(4) {
		return m.changedAttack()
	}
	for range 1 + m.IntN(5)/4 {
		spoilers := m.spoilers(kind)
		name := pick(m, slices.Sorted(maps.Keys(spoilers))...)
		a.kind = kind + ": " + name
		spoilers[name](a)
	}
	if m.often(8) {
		m.encode(a)
	}
	return a
}

// changedAttack makes an attack that is not quite as it is known. A question is left as it
// is: two answers are compared.
func (m *maker) changedAttack() *attempt {
	a := m.attack(m.Uint64())
	if a.absent == "" && m.often(60) {
		pick(m, m.spoilMountOptions, m.spoilFurther, m.encode)(a)
	}
	return a
}

// spoilers are what can be done to a volume of a kind.
func (m *maker) spoilers(kind string) map[string]func(*attempt) {
	all := map[string]func(*attempt){"mount options": m.spoilMountOptions, "type": m.spoilType, "further": m.spoilFurther}
	switch kind {
	case "image":
		all["file"], all["file "], all["other kind"] = m.spoilImage, m.spoilImage, m.spoilKind
	case "image, new":
		all["mkfs options"], all["size"], all["file"] = m.spoilMkfs, m.spoilSize, m.spoilImage
	case "device":
		all["device"], all["device "], all["other kind"] = m.spoilDevice, m.spoilDevice, m.spoilKind
	case "path":
		all["directory"], all["directory "], all["other kind"] = m.spoilPath, m.spoilPath, m.spoilKind
	case "source":
		all["source"], all["type "], all["credentials"] = m.spoilSource, m.spoilType, m.spoilCredentials
	case "memory":
		all["size"], all["other kind"] = m.spoilSize, m.spoilKind
	}
	return all
}

// names are what is in each directory that an attacker may write to.
func names() []string {
	return []string{
		"link-host.img", "link-theirs.img", "link-up.img", "link-shadow.img", "link-device.img", "link-proc.img", "link-nowhere.img", "link-scratch.img",
		"link-loop.img", "link-memory.img", "link-dir/file", "link-dir", "link-etc/shadow", "link-etc", "link-root/etc/shadow", "link-root", "link-theirs/theirs.img",
		"link-theirs", "link-pod/data.img", "link-pod", "link-cwd/etc", "link-self/old-1.img", "link-own.img",
		"fifo.img", "socket.img", "node.img", "memory.img", "dir.img", "dir.img/sub", "empty.img", "text.img", "hard.img",
		"link-dir/new.img", "link-root/new.img", "link-theirs/new.img", "link-self/link-self/link-dir/new.img",
	}
}

// place is a path that its author may not name, or that leads to one.
func (m *maker) place(own string) string {
	w := m.w
	switch n := m.IntN(1000); {
	case n < 420:
		return own + "/" + pick(m, names()...)
	case n < 422:
		return own + "/hang" + pick(m, "", "/x", "/x.img", "/../link-dir")
	case n < 580:
		return pick(m, own, w.directories+"/shared", w.images+"/"+mine) + pick(m, "/..", "/../", "/../../..", "/../../../../..", "/./..//../..") +
			pick(m, "", "/host/shadow", "/host/host.img", "/host", "/"+theirs+"/theirs.img", "/etc/shadow", "/host/dir", "/"+theirs)
	case n < 620:
		return pick(m, w.images, w.roots, w.directories, w.devicesDir, w.images+"x/host.img", w.images+"/"+theirs, w.images+"/"+mine)
	case n < 720:
		return w.images + "/" + pick(m, theirs+"/theirs.img", theirs+"/new.img", mine+"x/new.img", theirs, mine+"/../"+theirs+"/theirs.img", "new.img", "TEAM-A/new.img")
	}
	return pick(m, w.host+"/host.img", w.host+"/shadow", w.host+"/dir", w.host+"/dir/file", w.host, w.host+"/mnt", w.host+"/new.img", w.otherVolume()+"/data.img",
		w.otherVolume(), w.scratch, w.scratch+"/image.img", w.scratch+"/link-host.img", w.kubelet, w.kubelet+"/pods", w.plugins, w.hostDevice, w.diskDevice,
		"/", "/etc", "/etc/shadow", "/proc", "/proc/1/root", "/proc/self/fd/0", "/proc/self/root"+w.host+"/host.img", "/proc/self/cwd", "/proc/thread-self/environ",
		"/sys", "/dev", "/dev/null", "/dev/mem", "/dev/fd/3", "/dev/stdin", "/dev/loop-control", "/run", "/tmp", "/root", "/var/lib/kubelet", "/usr/bin", "etc/shadow", "shadow", "~root", "")
}

func (m *maker) spoilImage(a *attempt) {
	a.options["image"] = m.place(m.w.images + "/" + mine)
	if m.often(40) {
		a.options["size"] = pick(m, "8Mi", "1Mi", "16Mi")
	}
	m.flip(a, "image", "flip.img", "flip-theirs.img", "flip/old-1.img", "flip/theirs.img", "flip/new-flip.img")
}

func (m *maker) spoilPath(a *attempt) {
	a.options["path"] = m.place(m.w.directories + pick(m, "/shared", "/"+mine))
	m.flip(a, "path", "shared/flip", "shared/sub/flip", "shared/flip/sub")
}

// flip names, at times, what leads elsewhere all the time.
func (m *maker) flip(a *attempt, option string, names ...string) {
	if !m.often(6) {
		return
	}
	root := map[string]string{"image": m.w.images + "/" + mine, "path": m.w.directories, "device": m.w.devicesDir}[option]
	a.ways = append(a.ways, "swapped while the call runs")
	a.options[option] = root + "/" + pick(m, names...)
	for name := range m.w.flips() {
		if below(name, a.options[option]) {
			a.flip = name
		}
	}
}

func (m *maker) spoilDevice(a *attempt) {
	w := m.w
	switch m.IntN(4) {
	case 0:
		a.options["device"] = w.devicesDir + "/" + pick(m, "host", "text", "null", "image", "far", "fd", "none", "../devices/host", "../../host/host.img", ".", "..")
	case 1:
		a.options["device"] = pick(m, "LABEL=", "UUID=", "PARTUUID=", "PARTLABEL=", "label=", "ID=", "uuid=") + pick(m, "x", "../../host", "..", "/etc", "*", "", "data", "a b", "\\x2fetc", "$(id)", "-o", "x -o y", "6b5c4d3e-0000-4000-8000-000000000000")
	default:
		a.options["device"] = m.place(w.images + "/" + mine)
	}
	m.flip(a, "device", "flip")
}

func (m *maker) spoilKind(a *attempt) {
	for _, kind := range []string{"image", "device", "source", "path", "medium"} {
		delete(a.options, kind)
	}
	a.options[pick(m, "image", "device", "source", "path", "medium")] = m.place(m.w.directories + "/shared")
	if m.often(20) {
		a.options[pick(m, "image", "device", "source", "path", "medium")] = m.place(m.w.images + "/" + mine)
	}
}

func (m *maker) spoilSize(a *attempt) {
	a.options["size"] = pick(m, "1025Mi", "2Gi", "1073741825", "4G", "8Ei", "7E", "9223372036854775807", "9223372036854775808", "-1", "0", "1", "1e18", "1e30", "100Ti", "2Ti", "1025Gi", "0x7fffffffffff", " 5Ti", "5 Ti", "5ti", "0.5Ei", "1.5e13",
		"100%", "99%", "1,mode=4777", "1Mi,size=8Ei", "٣Gi", "1_000Ti", "+9Ti", "4Pi", "16777216Ti", "1000000G", "1P")
}

func (m *maker) spoilFurther(a *attempt) {
	switch m.IntN(6) {
	case 0:
		a.options[pick(m, "Image", "imageRoots", "rootdir", "options", "fsType", "secretRef", "command", "deviceRoots", "config", "--config", "mkfsoptions", "mountoptions", "driver", "kubeletDir", "sourceTypes")] = m.place(m.w.host)
	case 1:
		a.raw = `,"` + pick(m, "image", "path", "device", "source", "mountOptions", "mkfsOptions", flex.OptionFSType, flex.OptionPodNamespace, flex.OptionPodUID, flex.OptionFSGroup, flex.OptionReadWrite) +
			`":"` + pick(m, m.w.host+"/host.img", m.w.host+"/dir", theirs, "bind", "-d etc", "fuse", otherPod, "0", "rw") + `"`
	case 2:
		a.raw = pick(m, `,"image":{"a":"b"}`, `,"path":["/"]`, `,"size":1`, `,"x":null`, `}{"image":"/"`, `,"\u0069mage":"/etc/shadow"`, `,"image\u0000":"/"`)
	case 3:
		a.secrets = map[string]string{pick(m, "password", "key", "username", "..", "x", "credentials"): pick(m, secretOf(m)+"\nmount=evil", secretOf(m), "a,bind", strings.Repeat("s", 70000), "\x00\xff"+secretOf(m))}
	case 4:
		a.options["seLinuxContext"] = pick(m, `a:b:c",bind,x="`, `a:b:c,bind`, `x`, `u:r:t:s0 -o bind`, `u:r:t:s0\",suid`, "u:r:t:s0=/etc", "/:/:/", `u:r:t:s0,journal_path=/dev/null`)
	default:
		a.options[pick(m, "image", "path", "mountOptions", "mkfsOptions", "size", "zzz")] = strings.Repeat(pick(m, "A", "/", "../", ",", " -d", "[", "\\"), pick(m, 1000, 5000, 40000))
	}
}

// encode writes a value in another way.
func (m *maker) encode(a *attempt) {
	keys := slices.Sorted(maps.Keys(a.options))
	if len(keys) == 0 {
		return
	}
	key := pick(m, keys...)
	value := a.options[key]
	half := m.IntN(len(value) + 1)
	a.ways = append(a.ways, "written otherwise")
	a.options[key] = pick(m, " "+value, value+" ", "\t"+value, value+"\n", value+"\x00", value[:half]+"\x00"+value[half:], value[:half]+"\n"+value[half:],
		value+"/", value+"/.", "/"+value, "//"+value, strings.ReplaceAll(value, "/", "//"), strings.ReplaceAll(value, "/", "/./"), strings.ReplaceAll(value, "/", "%2f"), strings.ReplaceAll(value, ".", "%2e"),
		strings.ReplaceAll(value, "/", "／"), strings.ReplaceAll(value, "-", "–"), strings.ReplaceAll(value, ".", "․"), strings.ReplaceAll(value, "/", "\\"), strings.ToUpper(value), "\ufeff"+value, "\u200b"+value,
		value+"\u202e", `"`+value+`"`, "'"+value+"'", "$("+value+")", "`"+value+"`", "${HOME}"+value, value+";id", value+"|id", value+"#", value+"?", "file://"+value, "@"+value, value[half:],
		fmt.Sprintf("%s,%s", value, value), value[:half]+"\xff"+value[half:], strings.ReplaceAll(value, " ", "\u00a0"), strings.ReplaceAll(value, " ", "\v"), strings.ReplaceAll(value, "=", "\uff1d"))
}
