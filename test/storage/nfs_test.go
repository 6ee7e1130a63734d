package storage_test

import (
	"testing"

	"github.com/flex2csi/flex2csi/test/storage/guest"
)

// An nfsServer is the kernel's, with the exports /rw, /ro and /squash.
type nfsServer struct{ *network }

func newNFSServer(t *testing.T) *nfsServer {
	t.Helper()
	s := &nfsServer{newNetwork(t)}
	s.serve()
	return s
}

// serve makes the exports, on what is mounted at /srv/exports if anything is, and starts the server.
func (s *nfsServer) serve() {
	s.t.Helper()
	// The pseudo root of NFSv4 must not be an overlay; each network namespace has nfsd files of its own.
	s.sh(`modprobe nfsd; modprobe nfs; modprobe nfsv3; modprobe nfsv4; modprobe loop
mkdir -p /srv/exports
if ! mountpoint -q /srv/exports; then # of a disk
	truncate -s 200M /run/exports.img
	mkfs.ext4 -q /run/exports.img
	mount -o loop /run/exports.img /srv/exports
fi
mkdir -p /srv/exports/rw /srv/exports/ro /srv/exports/squash
echo old >/srv/exports/rw/old
echo old >/srv/exports/ro/old
chmod 777 /srv/exports/squash
cat >/etc/exports <<E
/rw     *(rw,no_root_squash,insecure,no_subtree_check,fsid=1)
/ro     *(ro,no_root_squash,insecure,no_subtree_check,fsid=2)
/squash *(rw,root_squash,insecure,no_subtree_check,fsid=3)
E
printf '[exports]\nrootdir=/srv/exports\n' >>/etc/nfs.conf
rpcbind -w
rpc.statd
cat >/run/serve <<'E'
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/lock /run/rpc_pipefs
mount -t nfsd nfsd /proc/fs/nfsd
rpcbind -w
rpc.statd
exportfs -ra
rpc.mountd
rpc.nfsd --grace-time 10 --lease-time 10 4
touch /tmp/serving
exec sleep infinity
E
ip netns exec servers unshare --mount sh -e /run/serve </dev/null >/tmp/serve.log 2>&1 &
echo $! >/tmp/serve.pid
while ! test -e /tmp/serving; do kill -0 $(cat /tmp/serve.pid) || { cat /tmp/serve.log; exit 1; }; sleep .1; done`)
}

// in runs a command where the server runs.
func (s *nfsServer) in(command string) {
	s.t.Helper()
	s.sh(`nsenter --target $(cat /tmp/serve.pid) --mount --net ` + command)
}

// stopped is the outage in which the machine is there and its clients are refused.
func (s *nfsServer) stopped() outage {
	return outage{
		begin: func() { s.in(`rpc.nfsd 0`) },
		end:   func() { s.in(`rpc.nfsd --grace-time 10 --lease-time 10 4`) },
	}
}

// recreate puts a directory in the place of an export. With fsid= the handle of its root stays the
// same, and the file is another one: the mount of before is stale.
func (s *nfsServer) recreate(export string) {
	s.t.Helper()
	s.in(`sh -e <<'E'
exportfs -u '*:` + export + `'
mkdir /srv/exports/other
rm -r /srv/exports` + export + `
mv /srv/exports/other /srv/exports` + export + `
echo new >/srv/exports` + export + `/new
exportfs -ra
E`)
}

// alone returns a volume of flexdriver alone.
func (s *nfsServer) alone(t *testing.T, export, mountOptions string) *volume {
	t.Helper()
	n := newNode(t)
	n.alone("example.com/nfs", "--source-type", "nfs")
	return n.newVolume("example.com/nfs", "pv", "nfs", map[string]string{"source": serverAddress + ":" + export, "mountOptions": mountOptions}, nil)
}

// bridged returns a volume of Kubernetes' example driver.
func (s *nfsServer) bridged(t *testing.T, share string) *volume {
	t.Helper()
	n := newNode(t)
	n.bridged("k8s/nfs", "k8s-nfs", "nfs")
	return n.newVolume("k8s/nfs", "pv", "", map[string]string{"server": serverAddress, "share": share}, nil)
}

func TestNFSAlone(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		s := newNFSServer(t)
		for _, version := range []string{"3", "4.1", "4.2"} {
			t.Run("life/v"+version, func(t *testing.T) { life(t, s.alone(t, "/rw", "vers="+version)) })
		}
	})
}

func TestNFSBridge(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		s := newNFSServer(t)
		t.Run("life", func(t *testing.T) { life(t, s.bridged(t, "rw")) })
		t.Run("fsGroup", func(t *testing.T) { grouped(t, s.bridged(t, "rw")) })
		t.Run("crashes", func(t *testing.T) { crashes(t, s.bridged(t, "rw")) })
	})
}
