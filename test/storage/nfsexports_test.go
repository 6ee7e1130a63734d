package storage_test

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/storage/guest"
)

// TestNFSExportsAlone and TestNFSExportsBridge prove what becomes of a volume when its export is
// missing, read-only, squashes root, or was made again under the mount.
func TestNFSExportsAlone(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		s := newNFSServer(t)
		for _, version := range []string{"3", "4.2"} {
			exports(t, s, "/v"+version, func(t *testing.T, export string) *volume { return s.alone(t, export, "vers="+version) })
		}
	})
}

func TestNFSExportsBridge(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		s := newNFSServer(t)
		exports(t, s, "", s.bridged)
	})
}

func exports(t *testing.T, s *nfsServer, name string, newVolume func(t *testing.T, export string) *volume) {
	t.Run("missing"+name, func(t *testing.T) {
		v := newVolume(t, "/missing")
		wantFailure(t, v.pod("a").tryMount(), serverAddress+":/missing")
		v.n.wantNothing()
	})
	t.Run("readOnly"+name, func(t *testing.T) {
		p := newVolume(t, "/ro").pod("a").mount()
		p.wantRead("old", "old\n")
		if err := p.write("new", ""); !errors.Is(err, unix.EROFS) {
			t.Errorf("a pod writes to an export that may only be read: %v", err)
		}
		p.mount()
		p.unmount()
		p.v.n.wantNothing()
	})
	t.Run("squash"+name, func(t *testing.T) { squashed(t, newVolume(t, "/squash")) })
	t.Run("stale"+name, func(t *testing.T) {
		p := newVolume(t, "/rw").pod("a").mount()
		s.recreate("/rw")
		p.unmount() // the kubelet calls mount for no directory that it cannot stat
		p.mount()
		p.wantRead("new", "new\n")
		p.unmount()
		p.v.n.wantNothing()
	})
}

// squashed mounts a volume with an fsGroup that root may not give it: like the kubelet, what
// mounts it leaves the files as they are.
func squashed(t *testing.T, v *volume) {
	t.Helper()
	group := int64(4321)
	p := v.pod("a")
	p.fsGroup = &group
	p.mount()
	if err := p.write("file", "data"); err != nil {
		t.Error(err)
	}
	p.mount()
	p.wantRead("file", "data")
	p.unmount()
	v.n.wantNothing()
}
