package storage_test

import (
	"maps"
	"testing"

	"github.com/flex2csi/flex2csi/test/storage/guest"
)

// An smbPreset is a FlexVolume driver of SMB shares, with volumes as its documents have them.
type smbPreset struct {
	preset, driver, fsType string
	// options are those of a volume.
	options func(share, mountOptions string) map[string]string
	// flags are the mount options of the documents' example.
	flags string
	// domain: the Secret may have one.
	domain bool
}

func smbPresets() []smbPreset {
	named := func(source, mountOptions string) func(string, string) map[string]string {
		return func(share, options string) map[string]string {
			return map[string]string{source: "//" + serverAddress + "/" + share, mountOptions: options}
		}
	}
	const azures = "vers=3.0,dir_mode=0777,file_mode=0777"
	return []smbPreset{
		{"azure-cifs", "azure/cifs", "", named("source", "mountOptions"), azures, false},
		{"azure-smb", "microsoft.com/smb", "", named("source", "mountoptions"), azures, true},
		{"fstab-cifs", "fstab/cifs", "cifs", named("networkPath", "mountOptions"), "dir_mode=0755,file_mode=0644,noperm", false},
		{"juliohm-cifs", "juliohm/cifs", "", func(share, options string) map[string]string {
			return map[string]string{"server": serverAddress, "share": "/" + share, "opts": options, "passwdMethod": "env"}
		}, "domain=STORAGE,sec=ntlmssp", true},
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

// TestSMBBridge: the volumes of the four FlexVolume drivers of SMB shares, as their vendors lay them
// out, live on csi-driver-smb through our presets, with Secrets of every kind.
func TestSMBBridge(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		newSMBServer(t)
		for _, p := range smbPresets() {
			t.Run(p.preset, func(t *testing.T) { p.test(t) })
		}
	})
}

func (p smbPreset) test(t *testing.T) {
	n := p.bridge(t)
	run := func(name, flags string, secret map[string]string, test func(*testing.T, *volume)) {
		t.Run(name, func(t *testing.T) {
			n.t = t
			test(t, p.volume(n, "pv", "share", flags, secret))
		})
	}
	alice := accounts()["simple"].secret()
	run("life", p.flags, alice, life)
	run("fsGroup", p.flags, alice, grouped)
	for name, a := range accounts() {
		if name != "blanks" { // the CSI driver cuts them off
			// A kernel reads names and passwords with its own character set, unless it is told.
			run("accounts/"+name, "iocharset=utf8", a.secret(), written)
		}
	}
	if p.domain {
		inDomain := maps.Clone(alice)
		inDomain["domain"] = "STORAGE"
		run("domain", "", inDomain, written)
	}
	run("crashes", p.flags, alice, crashes) // the last: the node ends with it
}

// TestSMBBridgeShares: names of shares reach the server as they are, and what the server refuses is
// answered with its reason.
func TestSMBBridgeShares(t *testing.T) {
	guest.Run(t, func(t *testing.T) {
		newSMBServer(t)
		p := smbPresets()[1]
		n := p.bridge(t)
		alice := accounts()["simple"].secret()
		run := func(name, share string, test func(*testing.T, *volume)) {
			t.Run(name, func(t *testing.T) {
				n.t = t
				test(t, p.volume(n, "pv", share, "", alice))
			})
		}
		run("space", "my share", written)
		run("subdirectory", "share/sub/with space", written)
		run("read-only share", "ro", unwritable)
		t.Run("refused", func(t *testing.T) {
			n.t = t
			refused(t, func(share string, a account) *volume { return p.volume(n, "pv", share, "", a.secret()) })
		})
		t.Run("blanks", func(t *testing.T) {
			n.t = t
			refuse(t, p.volume(n, "pv", "share", "", accounts()["blanks"].secret()), "NodeStageVolume", "Permission denied")
		})
		t.Run("guest", func(t *testing.T) {
			p := smbPresets()[2] // the fork of it that knows the option
			v := p.volume(p.bridge(t), "pv", "public", "", nil)
			v.options.User["guest"] = "true"
			written(t, v)
		})
	})
}
