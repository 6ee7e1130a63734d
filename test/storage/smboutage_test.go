package storage_test

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/test/storage/guest"
)

const (
	// soon has the kernel take a server for dead after some 30 seconds of silence, in place of three
	// minutes.
	soon = "echo_interval=10"
	// What becomes of calls to a dead server: they fail, as a mount has it that does not say, or wait.
	soft, hard = "soft,", "hard,"
)

// dead are the outages in which the server does not serve at all.
func (s *smbServer) dead() map[string]outage {
	return map[string]outage{"stopped": s.stopped(), "silent": s.silent()}
}

// A refusal is an outage in which the server serves, but not this volume.
type refusal struct {
	outage
	// reason is what a pod is told that wants the volume then.
	reason string
}

func (s *smbServer) refusals() map[string]refusal {
	alice := accounts()["simple"]
	password := func(to string) string {
		return fmt.Sprintf("smbpasswd -s %s <<'E'\n%s\n%[2]s\nE\n", alice.user, to)
	}
	rename := func(from, to string) string {
		return fmt.Sprintf(`sed -i 's/^\[%s\]$/[%s]/' /etc/samba/smb.conf`, from, to)
	}
	return map[string]refusal{
		"noShare":  {s.changed(rename("share", "other"), rename("other", "share")), "No such file or directory"},
		"password": {s.changed(password("another"), password(alice.password)), "Permission denied"},
	}
}

// TestSMBOutagesAlone and TestSMBOutagesBridge prove that a server that refuses, is silent or has
// been changed under a writer keeps neither pods from being deleted nor the node from what comes
// after it.
func TestSMBOutagesAlone(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		s := newSMBServer(t)
		newVolume := func(t *testing.T, share, wait string) *volume {
			return newAlone(t, "cifs", share, map[string]string{"mountOptions": wait + soon}, accounts()["simple"].secret())
		}
		for name, r := range s.refusals() {
			t.Run(name, func(t *testing.T) {
				mounted, _ := r.strike(t, newVolume(t, "share", soft))
				wantFailure(t, mounted, serverAddress, r.reason)
			})
		}
		t.Run("restarted", func(t *testing.T) { s.restarted(t, newVolume(t, "share", hard)) })
		t.Run("stale", func(t *testing.T) { s.recreated(t, newVolume(t, "share/again", soft)) })
	})
}

func TestSMBOutagesBridge(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		s := newSMBServer(t)
		p := smbPresets()[1]
		newVolume := func(t *testing.T, share, wait string) *volume {
			return p.volume(p.bridge(t), "pv", share, wait+soon, accounts()["simple"].secret())
		}
		outages := s.dead()
		for name, r := range s.refusals() {
			outages[name] = r.outage // another pod gets what is staged: no server gives a reason
		}
		for name, o := range outages {
			t.Run(name, func(t *testing.T) {
				mounted, _ := o.strike(t, newVolume(t, "share", soft))
				wantFailure(t, mounted, "does not answer")
			})
		}
		t.Run("restarted", func(t *testing.T) { s.restarted(t, newVolume(t, "share", hard)) })
		t.Run("stale", func(t *testing.T) { s.recreated(t, newVolume(t, "share/again", soft)) })
	})
}

// restarted: a pod that waits for the server goes on with it.
func (s *smbServer) restarted(t *testing.T, v *volume) {
	t.Helper()
	o := s.stopped()
	o.lasts = time.Second
	o.pass(t, v)
}

// recreated puts another directory in the place of a mounted one. The mount is stale then.
func (s *smbServer) recreated(t *testing.T, v *volume) {
	t.Helper()
	s.sh("mkdir -m 777 /srv/smb/again")
	p := v.pod("a").mount()
	s.sh("rmdir /srv/smb/again\nmkdir -m 777 /srv/smb/other\nmv /srv/smb/other /srv/smb/again\necho new >/srv/smb/again/new")
	time.Sleep(2 * time.Second) // attributes are cached for one
	if _, err := os.Stat(p.dir()); !errors.Is(err, unix.ESTALE) {
		t.Errorf("stat of a directory that is another one now: %v", err)
	}
	p.unmount() // the kubelet calls mount for no directory that it cannot stat
	p.mount()
	p.wantRead("new", "new\n")
	p.unmount()
	v.n.wantNothing()
	s.sh("rm -r /srv/smb/again")
}
