package storage_test

import (
	"testing"

	"github.com/flex2csi/flex2csi/test/storage/guest"
)

// An smbPreset is a FlexVolume driver of SMB shares.
type smbPreset struct {
	preset, driver, fsType string
	// options are those of its volumes.
	options func(share, mountOptions string) map[string]string
}

func smbPresets() []smbPreset {
	named := func(source, mountOptions string) func(string, string) map[string]string {
		return func(share, options string) map[string]string {
			return map[string]string{source: "//" + serverAddress + "/" + share, mountOptions: options}
		}
	}
	return []smbPreset{
		{"azure-cifs", "azure/cifs", "", named("source", "mountOptions")},
		{"azure-smb", "microsoft.com/smb", "", named("source", "mountoptions")},
		{"fstab-cifs", "fstab/cifs", "cifs", named("networkPath", "mountOptions")},
		{"juliohm-cifs", "juliohm/cifs", "", func(share, options string) map[string]string {
			return map[string]string{"server": serverAddress, "share": "/" + share, "opts": options}
		}},
	}
}

// volume returns one of a share, as the driver's volumes are.
func (p smbPreset) volume(n *node, name, share, mountOptions string, secret map[string]string) *volume {
	return n.newVolume(p.driver, name, p.fsType, p.options(share, mountOptions), secret)
}

// bridge returns a node with the bridge.
func (p smbPreset) bridge(t *testing.T, flags ...string) *node {
	t.Helper()
	n := newNode(t)
	n.bridged(p.driver, p.preset, "smb", flags...)
	return n
}

const flagsOfExamples = "dir_mode=0777,file_mode=0777,vers=3.0"

// TestSMBBridge: the volumes of the four FlexVolume drivers of SMB shares, as their vendors lay them
// out, live on csi-driver-smb through our presets.
func TestSMBBridge(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		newSMBServer(t)
		alice := accounts()["simple"].secret()
		for _, p := range smbPresets() {
			t.Run(p.preset, func(t *testing.T) { life(t, p.volume(p.bridge(t), "pv", "share", flagsOfExamples, alice)) })
		}
		newBridged := func(t *testing.T) *volume {
			p := smbPresets()[0]
			return p.volume(p.bridge(t), "pv", "share", flagsOfExamples, alice)
		}
		t.Run("fsGroup", func(t *testing.T) { grouped(t, newBridged(t)) })
		t.Run("crashes", func(t *testing.T) { crashes(t, newBridged(t)) })
		t.Run("guest", func(t *testing.T) {
			p := smbPresets()[2] // the fork of it that knows the option
			v := p.volume(p.bridge(t), "pv", "public", "", nil)
			v.options.User["guest"] = "true"
			written(t, v)
		})
	})
}

// TestSMBBridgeShares: what is in Secrets and in names of shares reaches the server as it is, and
// what the server refuses is answered with its reason.
func TestSMBBridgeShares(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		newSMBServer(t)
		p := smbPresets()[1]
		n := p.bridge(t)
		run := func(name, share string, secret map[string]string, test func(*testing.T, *volume)) {
			t.Run(name, func(t *testing.T) {
				n.t = t
				// A kernel reads names and passwords with its own character set, unless it is told.
				test(t, p.volume(n, "pv", share, "iocharset=utf8", secret))
			})
		}
		for name, a := range accounts() {
			if name == "blanks" {
				continue // the CSI driver cuts them off
			}
			run("accounts/"+name, "share", a.secret(), written)
		}
		alice := accounts()["simple"].secret()
		run("space", "my share", alice, written)
		run("subdirectory", "share/sub/with space", alice, written)
		run("read-only share", "ro", alice, unwritable)
		run("domain", "share", map[string]string{"username": "alice", "password": alice["password"], "domain": "STORAGE"}, written)
		t.Run("refused", func(t *testing.T) {
			n.t = t
			refused(t, func(share string, a account) *volume { return p.volume(n, "pv", share, "", a.secret()) })
		})
		t.Run("blanks", func(t *testing.T) {
			n.t = t
			refuse(t, p.volume(n, "pv", "share", "", accounts()["blanks"].secret()), "NodeStageVolume", "Permission denied")
		})
	})
}
