package storage_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// An smbServer is samba's, with the shares "share", "my share", "ro" and, for guests, "public".
type smbServer struct{ *network }

// An account is a user of the server.
type account struct{ user, password string }

// accounts are users by what is hard in their passwords.
func accounts() map[string]account {
	return map[string]account{
		"simple":      {"alice", "simple1"},
		"punctuation": {"bob", `p,a"s's w%=\rd$`},
		"UTF-8":       {"carol", "pässwörd€"},
		"blanks":      {"dave", " lead,trail "},
		"ASCII":       {"erin", "`!\"#$%&'()*+,-./:;<=>?@[\\]^_{|}~"},
		"no comma":    {"grace", `s'w% =\rd$;&|<>#~=`},
		"long":        {"frank", strings.Repeat("0123456789", 12)},
	}
}

func newSMBServer(t *testing.T) *smbServer {
	t.Helper()
	s := &smbServer{newNetwork(t)}
	// Samba has the accounts of its machine's users.
	s.sh(`modprobe cifs
mkdir -p '/srv/smb/sub/with space' /run/samba /var/lib/samba/private /var/cache/samba /var/log/samba
echo old >/srv/smb/old
echo old >'/srv/smb/sub/with space/old'
chmod -R 777 /srv/smb
cat >/etc/samba/smb.conf <<'E'
[global]
workgroup = STORAGE
server role = standalone server
disable netbios = yes
log file = /tmp/smbd.log
log level = 1
map to guest = never
[share]
path = /srv/smb
read only = no
[my share]
path = /srv/smb
read only = no
[ro]
path = /srv/smb
[public]
path = /srv/smb
read only = no
guest ok = yes
E`)
	for _, a := range accounts() {
		s.sh(fmt.Sprintf("useradd --no-create-home %s\nsmbpasswd -s -a %[1]s <<'E'\n%s\n%[2]s\nE\n", a.user, a.password))
	}
	s.start()
	t.Cleanup(func() {
		if log, err := os.ReadFile("/tmp/smbd.log"); err == nil && t.Failed() {
			t.Logf("smbd said:\n%s", log[max(0, len(log)-5000):])
		}
	})
	return s
}

// start runs smbd in a process group of its own, which has its children too.
func (s *smbServer) start() {
	s.t.Helper()
	s.sh(`setsid ip netns exec servers smbd --foreground --no-process-group </dev/null >/tmp/smbd.out 2>&1 &
echo $! >/tmp/smbd.pid`)
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("tcp", serverAddress+":445")
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatal(err)
		}
	}
}

// stop ends the server as a crash does.
func (s *smbServer) stop() {
	s.t.Helper()
	s.sh(`kill -KILL -$(cat /tmp/smbd.pid)
while pgrep --pgroup $(cat /tmp/smbd.pid) >/dev/null; do sleep .1; done`)
}

// stopped is the outage in which the machine is there and its clients are refused.
func (s *smbServer) stopped() outage { return outage{begin: s.stop, end: s.start} }

// changed is the outage in which the server has been given another configuration, by a script, until
// a second one. Clients see it when they come back after a restart.
func (s *smbServer) changed(begin, end string) outage {
	restart := func(script string) func() {
		return func() { s.t.Helper(); s.stop(); s.sh(script); s.start() }
	}
	return outage{begin: restart(begin), end: restart(end)}
}
