package storage_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/test/storage/guest"
)

// A ceph is a cluster with one monitor, one OSD and one MDS. It has the pool "replicapool" for
// images and the filesystem "myfs", as Rook's examples have them, and the users admin and csiUser.
type ceph struct {
	*network
	images int
}

const (
	// cephDir has what the daemons keep, but for the OSD's disk.
	cephDir = "/srv/ceph"
	pool    = "replicapool"
	fsName  = "myfs"
	monitor = serverAddress + ":6789"
	// csiUser has whatever the name of a user may have in an option of a mount.
	csiUser = "csi-node.1_a"
)

// needCeph skips a test where the guests have no Ceph.
func needCeph(t *testing.T) {
	t.Helper()
	guest.Need(t, "ceph-mon")
}

func newCeph(t *testing.T) *ceph {
	t.Helper()
	c := &ceph{network: newNetwork(t)}
	c.sh(`modprobe loop
truncate -s 4G /run/osd.img
losetup /dev/loop0 /run/osd.img`)
	c.make("/dev/loop0")
	c.serve("mds", "a")
	return c
}

// make makes a cluster on a disk of the OSD, and starts it but for the MDS. Its users are in the
// monitor from its first start.
func (c *ceph) make(disk string) {
	c.t.Helper()
	c.t.Cleanup(c.tellLogs)
	c.sh(`mkdir -p ` + cephDir + `/mon ` + cephDir + `/osd ` + cephDir + `/mds
ln -s ` + disk + ` ` + cephDir + `/osd/block
cat /proc/sys/kernel/random/uuid >` + cephDir + `/uuid`)
	c.configure()
	c.newKeys()
	c.sh(`ip netns exec servers ceph-mon --mkfs --id a --keyring ` + cephDir + `/keys
ceph-osd --mkfs --id 0 --osd-uuid $(cat ` + cephDir + `/uuid) --no-mon-config`)
	c.serve("mon", "a")
	// One process for all: each takes seconds to start.
	c.sh(`ceph <<E
osd new $(cat ` + cephDir + `/uuid)
osd pool create ` + pool + `
osd pool create ` + fsName + `-metadata
osd pool create ` + fsName + `-data0
osd pool application enable ` + pool + ` rbd
fs new ` + fsName + ` ` + fsName + `-metadata ` + fsName + `-data0
E`)
	c.serve("osd", "0")
}

// newKeys makes the users, and the files in which daemons and clients find themselves.
func (c *ceph) newKeys() {
	c.t.Helper()
	users := []struct{ file, name, caps string }{
		{"mon", "mon.", `mon = "allow *"`},
		{"osd/keyring", "osd.0", `mon = "allow profile osd", osd = "allow *"`},
		{"mds/keyring", "mds.a", `mon = "allow profile mds", osd = "allow *", mds = "allow"`},
		{"admin", "client.admin", `mon = "allow *", osd = "allow *", mds = "allow *"`},
		{"user", "client." + csiUser, `mon = "profile rbd, allow r", osd = "profile rbd, allow rw tag cephfs *=*", mds = "allow rw"`},
	}
	var all strings.Builder
	for _, u := range users {
		text := fmt.Sprintf("[%s]\nkey = %s\ncaps %s\n", u.name, newKey(), strings.ReplaceAll(u.caps, `", `, "\"\ncaps "))
		all.WriteString(text)
		if u.file == "mon" {
			continue // the monitor keeps its own
		}
		if err := os.WriteFile(filepath.Join(cephDir, u.file), []byte(text), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(cephDir, "keys"), []byte(all.String()), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// newKey returns a key as ceph-authtool makes it: a type, a time, a length and sixteen random bytes.
func newKey() string {
	key := binary.LittleEndian.AppendUint16(nil, 1)
	key = binary.LittleEndian.AppendUint32(key, uint32(time.Now().Unix()))
	key = binary.LittleEndian.AppendUint32(key, 0)
	key = binary.LittleEndian.AppendUint16(key, 16)
	key = append(key, make([]byte, 16)...)
	rand.Read(key[len(key)-16:])
	return base64.StdEncoding.EncodeToString(key)
}

// tellLogs says what daemons and kernel have said, if the test has failed.
func (c *ceph) tellLogs() {
	if c.t.Failed() {
		out, err := exec.Command("sh", "-c", "tail -n 20 /var/log/ceph/*.log; dmesg | tail -n 20").CombinedOutput()
		c.t.Logf("Ceph's daemons and the kernel said:\n%s%v", out, err)
	}
}

// configure writes what daemons and clients read. The graces are for a guest that its machine lets
// wait.
func (c *ceph) configure() {
	c.t.Helper()
	c.sh(`modprobe rbd
modprobe ceph
modprobe xfs
modprobe fuse
ln -sf /proc/self/mounts /etc/mtab
mkdir -p /etc/ceph /etc/ceph-csi-config /tmp/csi/keys /run/ceph /var/log/ceph
cat >/etc/ceph/ceph.conf <<E
[global]
fsid = $(cat ` + cephDir + `/uuid)
mon_host = [v2:` + serverAddress + `:3300,v1:` + monitor + `]
public_addr = ` + serverAddress + `
mon_data = ` + cephDir + `/mon
osd_data = ` + cephDir + `/osd
mds_data = ` + cephDir + `/mds
osd_pool_default_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mds_beacon_grace = 600
osd_op_thread_timeout = 600
osd_op_thread_suicide_timeout = 3600
osd_memory_target = 939524096
bluestore_cache_autotune = false
bluestore_cache_size = 67108864
E
ln -sf ` + cephDir + `/admin /etc/ceph/ceph.client.admin.keyring
cat >/etc/ceph-csi-config/config.json <<E
[{"clusterID": "rook-ceph", "monitors": ["` + monitor + `"]}]
E`)
}

// serve starts a daemon where the servers are. It works when the command ends.
func (c *ceph) serve(kind, id string) {
	c.t.Helper()
	c.sh(`ip netns exec servers ceph-` + kind + ` --id ` + id + ` </dev/null >/tmp/ceph-` + kind + `.log 2>&1`)
}

// secret is the Secret of a user as ceph-csi wants it.
func (c *ceph) secret() map[string]string {
	return map[string]string{"userID": csiUser, "userKey": c.key()}
}

// key is that user's.
func (c *ceph) key() string {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join(cephDir, "user"))
	if err != nil {
		c.t.Fatal(err)
	}
	_, key, _ := strings.Cut(string(text), "key = ")
	key, _, _ = strings.Cut(key, "\n")
	return key
}

// bridged returns a node with the bridge, and the preset as an operator of this cluster would fill
// it in. edits are pairs of what else is changed in the preset, and to what.
func (c *ceph) bridged(t *testing.T, kind string, edits ...string) *node {
	t.Helper()
	n := newNode(t)
	n.setSecret(c.secret())
	n.edits = edits
	n.bridged(rookDriver(kind), "rook-"+kind, kind)
	return n
}

// rookDriver is the name that a preset has for a FlexVolume driver.
func rookDriver(kind string) string {
	return map[string]string{"rbd": "ceph.rook.io/rook-ceph", "cephfs": "ceph.rook.io/rook"}[kind]
}
