package storage_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/storage/guest"
)

// secret is what the volume's Secret has.
func (a account) secret() map[string]string {
	return map[string]string{"username": a.user, "password": a.password}
}

// newAlone returns a volume that flexdriver mounts by itself.
func newAlone(t *testing.T, fsType, share string, options, secret map[string]string) *volume {
	t.Helper()
	n := newNode(t)
	n.alone("example.com/smb", "--source-type", fsType)
	all := map[string]string{"source": "//" + serverAddress + "/" + share}
	maps.Copy(all, options)
	return n.newVolume("example.com/smb", "pv", fsType, all, secret)
}

// TestSMBAlone: flexdriver mounts shares with accounts of every kind.
func TestSMBAlone(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		newSMBServer(t)
		alice := accounts()["simple"].secret()
		for _, fsType := range []string{"cifs", "smb3"} {
			t.Run("life/"+fsType, func(t *testing.T) { life(t, newAlone(t, fsType, "share", nil, alice)) })
		}
		for name, a := range accounts() {
			t.Run("accounts/"+name, func(t *testing.T) { written(t, newAlone(t, "cifs", "share", nil, a.secret())) })
		}
		for name, share := range map[string]string{"space": "my share", "subdirectory": "share/sub/with space"} {
			t.Run(name, func(t *testing.T) { written(t, newAlone(t, "cifs", share, nil, alice)) })
		}
		t.Run("guest", func(t *testing.T) {
			written(t, newAlone(t, "cifs", "public", map[string]string{"mountOptions": "guest"}, nil))
		})
		t.Run("read-only share", func(t *testing.T) { unwritable(t, newAlone(t, "cifs", "ro", nil, alice)) })
		t.Run("refused", func(t *testing.T) {
			refused(t, func(share string, a account) *volume { return newAlone(t, "cifs", share, nil, a.secret()) })
		})
	})
}

// written mounts a volume with a file "old", and writes and removes another one.
func written(t *testing.T, v *volume) {
	t.Helper()
	p := v.pod("a").mount()
	p.wantRead("old", "old\n")
	if err := p.write("new", "data"); err != nil {
		t.Error(err)
	}
	p.wantRead("new", "data")
	if err := os.Remove(filepath.Join(p.dir(), "new")); err != nil {
		t.Error(err)
	}
	p.unmount()
	v.n.wantNothing()
}

// unwritable mounts a volume of a share that is read-only on the server.
func unwritable(t *testing.T, v *volume) {
	t.Helper()
	p := v.pod("a").mount()
	p.wantRead("old", "old\n")
	if err := p.write("other", ""); err == nil {
		t.Error("a read-only share was written")
	}
	p.unmount()
	v.n.wantNothing()
}

// refused mounts what the server refuses.
func refused(t *testing.T, newVolume func(share string, a account) *volume) {
	t.Helper()
	const wrong = "wrong-not-to-be-seen"
	refuse(t, newVolume("share", account{"alice", wrong}), "Permission denied")
	refuse(t, newVolume("share", account{"alice", wrong + `,"`}), "Permission denied")
	refuse(t, newVolume("no-such-share", accounts()["simple"]), "No such file or directory")
}

// refuse mounts a volume that cannot be: the answer has these texts and no secret, and nothing is
// left.
func refuse(t *testing.T, v *volume, texts ...string) {
	t.Helper()
	p := v.pod("a")
	status := p.tryMount()
	password := string(v.options.Secrets["password"].Reveal())
	if status.Status != flex.StatusFailure || strings.Contains(status.Message, password) {
		t.Errorf("mount answered %s: %s; want a Failure without the password %q", status.Status, status.Message, password)
	}
	for _, text := range texts {
		if !strings.Contains(status.Message, text) {
			t.Errorf("mount answered %q; want %q in it", status.Message, text)
		}
	}
	p.unmount()
	v.n.wantNothing()
}
