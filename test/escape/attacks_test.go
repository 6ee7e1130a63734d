package escape

import (
	"fmt"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// An attack is one that a single check stands against. Every campaign has each of them,
// however short it is; at random they are made as well, and changed as all attempts are.
type attack struct {
	name string
	make func(m *maker, a *attempt)
}

// every is after how many attempts there is one of the attacks.
const every = 10

func attacks() []attack {
	return []attack{
		{"disk that a loop device shows", func(m *maker, a *attempt) { m.disk(a, m.w.devicesDir+"/looped") }},
		{"disk that a program has open", (*maker).attackOpen},
		{"disk that a container has", func(m *maker, a *attempt) { m.disk(a, m.w.devicesDir+"/contained") }},
		{"disk with raw data", func(m *maker, a *attempt) { m.disk(a, m.w.devicesDir+"/raw") }},
		{"disk by its label", (*maker).attackLabel},
		{"disk by udev's link", (*maker).attackLink},
		{"disk with the UUID of another", func(m *maker, a *attempt) { m.disk(a, "UUID="+uuid(twins)) }},
		{"fsGroup of a directory with links", (*maker).attackGroup},
		{"mkfs options", (*maker).attackMkfs},
		{"reserve of the node", (*maker).attackReserve},
		{"bytes of a namespace", (*maker).attackBytes},
		{"images of a namespace", func(m *maker, a *attempt) { m.newImage(a, rooted, crowded, pick(m, "8Mi", "9Mi")) }},
		{"lock of what is not opened", (*maker).attackLock},
		{"configuration of mode 0666", func(_ *maker, a *attempt) { a.driver = looseMode }},
		{"configuration of another user", func(_ *maker, a *attempt) { a.driver = looseOwner }},
		{"configuration in a directory of mode 0777", func(_ *maker, a *attempt) { a.driver = looseDirectory }},
		{"root below a directory of another user", func(m *maker, a *attempt) { m.otherRoot(a, otherParent, m.w.otherRoots) }},
		{"root behind a link of another user", func(m *maker, a *attempt) { m.otherRoot(a, otherLink, m.w.linkedRoots) }},
		{"root that is a link to the image roots", (*maker).attackAlias},
		{"credentials of CIFS", (*maker).attackCredentials},
		{"question whether an image exists", (*maker).attackImages},
		{"question whether something exists", (*maker).attackExistence},
	}
}

// attack makes an attempt that is one of the attacks.
func (m *maker) attack(n uint64) *attempt {
	a, known := m.valid(), attacks()
	chosen := known[n%uint64(len(known))]
	a.kind, a.calls = "attack: "+chosen.name, []flex.Command{flex.CommandMount}
	chosen.make(m, a)
	return a
}

// disk makes a volume of a disk.
func (m *maker) disk(a *attempt, device string) {
	a.driver, a.readOnly, a.secrets = rooted, m.often(10), nil
	a.options, a.fsType = map[string]string{"device": device}, pick(m, "", "ext4")
	m.mountOptions(a, validDiskOptions(a.fsType))
	if m.often(30) {
		a.driver, a.calls = attaching, []flex.Command{flex.CommandWaitForAttach, flex.CommandMountDevice, flex.CommandMount}
	}
}

// attackOpen makes one call: the driver waits two seconds for the program to close it.
func (m *maker) attackOpen(a *attempt) {
	m.disk(a, m.w.devicesDir+"/opened")
	a.calls = a.calls[len(a.calls)-1:]
}

func (m *maker) attackLabel(a *attempt) {
	m.disk(a, pick(m, "LABEL=", "PARTLABEL=")+label)
}

func (m *maker) attackLink(a *attempt) {
	m.disk(a, "/dev/disk/by-"+pick(m, "label/"+label, "partlabel/"+label, "uuid/"+uuid(twins), "partuuid/"+uuid(twins)))
}

// attackGroup has the driver change all files of a directory where others put links.
func (m *maker) attackGroup(a *attempt) {
	a.driver, a.readOnly, a.fsGroup, a.fsType = rooted, false, true, ""
	a.options = map[string]string{"path": m.w.directories + pick(m, "/shared", "/"+mine)}
}

func (m *maker) newImage(a *attempt, driver int, namespace, size string) {
	a.driver, a.readOnly, a.namespace, a.fsType = driver, false, namespace, pick(m, "ext4", "")
	a.options = map[string]string{"image": fmt.Sprintf("%s/%s/new-%08x.img", m.w.images, namespace, m.Uint32()), "size": size}
}

// attackReserve and attackBytes make an image that is too large, or have one grow.
func (m *maker) attackReserve(a *attempt) {
	m.newImage(a, attaching, mine, pick(m, "700Mi", "1Gi", "900M"))
	m.grow(a, 700<<20)
}

func (m *maker) attackBytes(a *attempt) {
	m.newImage(a, rooted, mine, pick(m, "450Mi", "500Mi", "550M"))
	m.grow(a, 450<<20)
}

func (m *maker) grow(a *attempt, size int) {
	if m.often(25) {
		a.options = map[string]string{"image": m.w.images + "/" + mine + "/old-1.img"}
		a.grown, a.calls = size, []flex.Command{flex.CommandMount, pick(m, flex.CommandExpandVolume, flex.CommandExpandFS)}
	}
}

func (m *maker) attackMkfs(a *attempt) {
	m.newImage(a, pick(m, rooted, attaching), mine, "8Mi")
	m.spoilMkfs(a)
}

// attackLock attaches: an inline volume can, without a pod that ever runs.
func (m *maker) attackLock(a *attempt) {
	w := m.w
	a.driver = pick(m, attaching, bare)
	a.calls = pick(m, []flex.Command{flex.CommandAttach}, []flex.Command{flex.CommandIsAttached}, []flex.Command{flex.CommandAttach, flex.CommandIsAttached})
	option, value := "device", pick(m, w.hostDevice, w.host+"/disk", "/dev/sda", w.devicesDir+"/../../host/disk", w.roots+"/devicesx/disk")
	if a.driver == bare {
		value = pick(m, value, w.devicesDir+"/disk", "UUID="+uuid(twins), "PARTUUID=x")
	}
	if m.often(50) {
		option, value = "image", pick(m, w.host+"/host.img", w.images+"/theirs.img", w.images+"/"+theirs, w.images+"x/"+theirs+"/theirs.img", w.otherVolume()+"/data.img")
	}
	a.options, a.fsType = map[string]string{option: value}, "ext4"
}

// otherRoot makes a volume below roots that another user can replace.
func (m *maker) otherRoot(a *attempt, driver int, roots string) {
	a.driver, a.fsType, a.secrets = driver, "", nil
	a.options = pick(m, map[string]string{"image": roots + "/images/" + mine + "/old-1.img"}, map[string]string{"path": roots + "/directories/shared"}, map[string]string{"device": roots + "/devices/disk"})
}

func (m *maker) attackAlias(a *attempt) {
	a.driver, a.fsType, a.secrets = aliased, "", nil
	a.options = map[string]string{"path": m.w.alias + pick(m, "", "/images", "/images/"+theirs, "/images/"+mine)}
}

func (m *maker) attackCredentials(a *attempt) {
	a.driver, a.fsType, a.raw = rooted, "cifs", ""
	a.options = map[string]string{"source": "//server/" + pick(m, "leak", "leak", "share")}
	a.secrets = map[string]string{"username": "user", "password": secretOf(m), "domain": "d"}
	m.mountOptions(a, []string{"vers=3.0", "uid=1000", "noperm", "cache=none"})
}

// attackImages asks, by calls that do not tell the namespace of their pod, for an image
// that is there and for one that is not. Of neither the attacker may know.
func (m *maker) attackImages(a *attempt) {
	m.ask(a, "image", m.w.images+"/"+theirs+"/theirs.img")
	a.driver = attaching
	a.calls = []flex.Command{pick(m, flex.CommandWaitForAttach, flex.CommandWaitForAttach, flex.CommandMountDevice, flex.CommandAttach)}
}

// attackExistence asks for what lies elsewhere.
func (m *maker) attackExistence(a *attempt) {
	w := m.w
	option := pick(m, "image", "image", "path", "device")
	there := pick(m, w.host+"/host.img", w.host+"/dir", w.otherVolume()+"/data.img", "/etc/passwd", w.host+"/mnt")
	switch {
	case option == "image" && m.often(80):
		there = w.images + "/" + pick(m, theirs+"/theirs.img", mine+"/link-theirs/theirs.img", mine+"/link-dir/file", mine+"/link-root/etc", mine+"/../"+theirs+"/theirs.img")
	case option == "path" && m.often(60):
		there = w.directories + "/shared/" + pick(m, "link-dir/sub", "link-root/etc", "../../host/dir", "link-pod/file")
	}
	m.ask(a, option, there)
	a.driver = pick(m, rooted, attaching)
	if option == "image" && m.often(30) {
		a.options["size"] = "8Mi"
	}
}

func (m *maker) ask(a *attempt, option, there string) {
	a.secrets, a.fsType = nil, ""
	a.options, a.absent = map[string]string{option: there}, there[:len(there)-2]+"0x"
}
