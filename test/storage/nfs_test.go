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

// stop and start are the machine's of the server: its clients are refused meanwhile.
func (s *nfsServer) stop() {
	s.t.Helper()
	s.sh(`nsenter --target $(cat /tmp/serve.pid) --mount --net rpc.nfsd 0`)
}

func (s *nfsServer) start() {
	s.t.Helper()
	s.sh(`nsenter --target $(cat /tmp/serve.pid) --mount --net rpc.nfsd --grace-time 10 --lease-time 10 4`)
}

func TestNFSAlone(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		newNFSServer(t)
		for _, version := range []string{"3", "4.1", "4.2"} {
			t.Run("life/v"+version, func(t *testing.T) {
				n := newNode(t)
				n.alone("example.com/nfs", "--source-type", "nfs")
				life(t, n.newVolume("example.com/nfs", "pv", "nfs", map[string]string{"source": serverAddress + ":/rw", "mountOptions": "vers=" + version}, nil))
			})
		}
	})
}

func TestNFSBridge(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		newNFSServer(t)
		newBridged := func(t *testing.T) *volume {
			n := newNode(t)
			n.bridged("k8s/nfs", "k8s-nfs", "nfs")
			return n.newVolume("k8s/nfs", "pv", "", map[string]string{"server": serverAddress, "share": "rw"}, nil)
		}
		t.Run("life", func(t *testing.T) { life(t, newBridged(t)) })
		t.Run("fsGroup", func(t *testing.T) { grouped(t, newBridged(t)) })
		t.Run("crashes", func(t *testing.T) { crashes(t, newBridged(t)) })
	})
}
