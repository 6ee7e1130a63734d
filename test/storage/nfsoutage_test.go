package storage_test

import (
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/test/storage/guest"
)

// TestNFSOutagesAlone and TestNFSOutagesBridge prove that a server that refuses or is silent under
// a writer keeps neither pods from being deleted nor the node from what comes after it.
func TestNFSOutagesAlone(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		s := newNFSServer(t)
		t.Run("stopped/v3", func(t *testing.T) {
			mounted, _ := s.stopped().strike(t, s.alone(t, "/rw", "vers=3"))
			wantFailure(t, mounted, serverAddress+":/rw")
		})
		t.Run("stopped/v4.2", func(t *testing.T) {
			// The kernel has a session with the server, and waits for it in the new mount, too.
			mounted, _ := s.stopped().strike(t, s.alone(t, "/rw", "vers=4.2"))
			wantFailure(t, mounted, serverAddress+":/rw")
		})
		t.Run("silent/v3", func(t *testing.T) {
			mounted, _ := s.silent().strike(t, s.alone(t, "/rw", "vers=3"))
			wantFailure(t, mounted, serverAddress+":/rw", "the server does not answer")
		})
		// The kernel asks for three minutes with its own timeo and retrans: see TestNFSLongOutage.
		t.Run("silent/v4.2", func(t *testing.T) {
			mounted, _ := s.silent().strike(t, s.alone(t, "/rw", "vers=4.2,timeo=50,retrans=1"))
			wantFailure(t, mounted, serverAddress+":/rw", "the server does not answer")
		})
		t.Run("pass", func(t *testing.T) {
			for _, o := range []outage{s.stopped(), s.silent()} {
				o.lasts = 10 * time.Second
				o.pass(t, s.alone(t, "/rw", "vers=4.2"))
			}
		})
	})
}

func TestNFSOutagesBridge(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		s := newNFSServer(t)
		for name, o := range map[string]outage{"stopped": s.stopped(), "silent": s.silent()} {
			t.Run(name, func(t *testing.T) {
				mounted, _ := o.strike(t, s.bridged(t, "rw"))
				wantFailure(t, mounted)
			})
		}
	})
}

// TestNFSLongOutage proves the same of a server that is silent for ten minutes, and that the
// call of a pod that wants the volume then is answered before two minutes.
func TestNFSLongOutage(t *testing.T) {
	guest.RunLong(t, func(t *testing.T) {
		s := newNFSServer(t)
		o := s.silent()
		o.lasts = 10 * time.Minute
		t.Run("alone", func(t *testing.T) {
			mounted, _ := o.strike(t, s.alone(t, "/rw", "vers=4.2"))
			wantFailure(t, mounted, "still in progress after 1m50s")
		})
		t.Run("bridge", func(t *testing.T) { o.strike(t, s.bridged(t, "rw")) })
		t.Run("pass", func(t *testing.T) { o.pass(t, s.alone(t, "/rw", "vers=4.2")) })
	})
}
