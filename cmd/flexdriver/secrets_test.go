package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/flex2csi/flex2csi/internal/daemon"
	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A helper that tells all that it knows, as mount.cifs(8) does of options that
// it does not like: what it was given, in clear, in base64 and escaped.
const talkative = `
	shift 2
	while [ $# -gt 0 ]; do case $1 in -o) options=$2; shift;; esac; shift; done
	echo "options: $options" >&2
	for file in $(echo "$options" | tr , '\n' | sed -n 's,^[a-z_]*=\(/proc/.*\),\1,p'); do
		cat "$file"; echo; cat "$file" | base64 -w 0; echo
		sed 's/password=//' "$file" | tail -1 | tr -d '\n' | base64 -w 0
		cat "$file" >&2
	done
	exit 32`

// One secret has all characters that some text gives a meaning to, and another
// none, so that it can be hidden among options without being torn apart.
func TestNoSecretLeaks(t *testing.T) {
	t.Run("nasty", func(t *testing.T) {
		h := newLeakHunt(t, `p@ss,w/"<`, `>&\+ 'x%41$(id)`)
		h.everyCallout(h.volumes())
		for _, args := range h.malformed() {
			h.run(append([]string{"--log-file", h.log, "-vv"}, args...)...)
			h.run(append([]string{"--dry-run"}, args...)...)
		}
		h.withHelpers()
		h.report()
	})
	t.Run("plain", func(t *testing.T) {
		h := newLeakHunt(t, "", "")
		h.everyCallout(h.hidden())
		h.report()
	})
	t.Run("csi", func(t *testing.T) {
		h := newLeakHunt(t, `p@ss,w/"<`, `>&\+ 'x%41$(id)`)
		requests := h.indiscreetDaemon()
		h.everyCallout(map[string]string{
			"a secret":  h.argument("ext4", "volumeHandle", "disk-1"),
			"an option": h.argument("cifs", "volumeHandle", "disk-1", "mountOptions", "password="+h.secret),
		})
		if n := requests(); n == 0 || h.answered == 0 || h.programs > 0 {
			t.Errorf("%d requests, %d lines of log, %d programs were started", n, h.answered, h.programs)
		}
	})
}

// indiscreetDaemon listens where the driver calls, and repeats in its answers
// all that it was told. The number of requests is returned.
func (h *leakHunt) indiscreetDaemon() (requests func() int64) {
	h.Helper()
	socket := filepath.Join(h.dir, "s")
	config := csiConfig(socket, filepath.Join(h.dir, "state"))
	if err := os.WriteFile(filepath.Join(filepath.Dir(h.driver), ".flexdriver.json"), []byte(config), 0o644); err != nil {
		h.Fatal(err)
	}
	l, err := daemon.Listen(socket)
	if err != nil {
		h.Fatal(err)
	}
	var count atomic.Int64
	server := &daemon.Server{Handler: func(_ context.Context, r *wire.Request) flex.DriverStatus {
		count.Add(1)
		text := fmt.Sprintf("called with %s and %q", r.Argv, r.Argv)
		var options flex.Options
		if call, err := flex.ParseCall(r.Argv); err == nil {
			options = call.Options
		}
		for key, secret := range options.Secrets {
			text = fmt.Sprintf("%s=%s, %q, %s", key, secret.Reveal(), secret.Reveal(), text)
		}
		return flex.Failure(errors.New(text))
	}}
	done := make(chan error, 1)
	go func() { done <- server.Serve(context.Background(), l) }()
	h.Cleanup(func() {
		l.Close()
		if err := <-done; err != nil {
			h.Error(err)
		}
	})
	return count.Load
}

// everyCallout makes all the calls with each of the volumes and flags.
func (h *leakHunt) everyCallout(volumes map[string]string) {
	h.Helper()
	if err := os.Mkdir(filepath.Join(h.dir, "images"), 0o755); err != nil {
		h.Fatal(err)
	}
	for _, flags := range [][]string{{"--log-file", h.log, "-vvv"}, {"--log-file", h.log, "-v", "--dry-run"}} {
		for name, volume := range volumes {
			for _, args := range h.callouts(volume) {
				if strings.HasPrefix(name, "device:") && (args[0] == "attach" || args[0] == "isattached") {
					continue // the answer, and the note of who has it, name the device as it was given
				}
				h.run(append(slices.Clone(flags), args...)...)
			}
		}
	}
}

// volumes are valid and invalid ones, with the secret in wrong places.
func (h *leakHunt) volumes() map[string]string {
	h.Helper()
	image := filepath.Join(h.dir, "images", "disk.img")
	return map[string]string{
		"image":               h.argument("ext4", "image", image, "size", "16Mi"),
		"memory":              h.argument("", "medium", "memory", "size", "1Mi"),
		"no kind":             h.argument("", "password", h.secret),
		"unknown option":      h.argument("", "image", image, "password", h.secret, h.secret, "x"),
		"secret as source":    h.argument("nonesuch", "source", "//server/"+h.secret),
		"secret as user":      h.argument("nonesuch", "source", "http://anna:"+h.secret+"@server/share"),
		"device: image":       h.argument("", "image", "/none/"+h.secret),
		"device: UUID":        h.argument("", "device", "UUID="+h.secret),
		"secret as a size":    h.argument("", "image", image, "size", h.secret),
		"secret as fsType":    h.argument(h.secret, "image", image),
		"secret as type":      h.argument(h.secret, "source", "//s/x"),
		"secret as directory": h.argument("", "path", "/"+h.secret),
		"secret as a label":   h.argument("", "image", image, "seLinuxContext", h.secret),
		"no helper":           h.argument("cifs", "source", "//s/x"),
		"key that is missing": h.argument("cifs", "source", "//s/x", "mountOptions", `credentials="$(secretFile:nokey)"`),
		"newline in a secret": h.argument("cifs", "source", "//s/x", "mountOptions", "credentials=$(secretFile:newline)"),
	}
}

// hidden are volumes with the secret among their options.
func (h *leakHunt) hidden() map[string]string {
	h.Helper()
	image := filepath.Join(h.dir, "images", "disk.img")
	return map[string]string{
		"with a disk":     h.argument("ext4", "image", image, "size", "16Mi"),
		"as an option":    h.argument("cifs", "source", "//s/x", "mountOptions", "username=u,password="+h.secret),
		"as an odd one":   h.argument("cifs", "source", "//s/x", "mountOptions", "vers=3.0,nonsense="+h.secret),
		"for the kernel":  h.argument("ext4", "image", image, "size", "16Mi", "mountOptions", "nonsense="+h.secret),
		"as the kernel's": h.argument("ext4", "image", image, "size", "16Mi", "mountOptions", h.secret),
		"for the tmpfs":   h.argument("", "medium", "memory", "mountOptions", "nonsense="+h.secret),
		"as a key":        h.argument("cifs", "source", "//s/x", "mountOptions", "credentials=$(secretFile:"+h.secret+")"),
	}
}

// callouts are all of them, as the kubelet calls them or a person might.
func (h *leakHunt) callouts(volume string) [][]string {
	return [][]string{
		{"init"},
		{"getvolumename", volume},
		{"attach", volume, "node"},
		{"isattached", volume, "node"},
		{"isattached", "node", volume},
		{"--timeout", "200ms", "waitforattach", "/dev/none", volume},
		{"mountdevice", h.global, "/dev/none", volume},
		{"mount", h.pod, volume},
		{"mount", h.pod, volume},
		{"expandfs", volume, "", h.pod, "33554432", "16777216"},
		{"expandvolume", volume, h.global, "33554432", "16777216"},
		{"unmount", h.pod},
		{"unmountdevice", h.global},
		{"detach", "data", "node"},
	}
}

// malformed are invalid calls, with the secret in places where an error message might
// show it.
func (h *leakHunt) malformed() [][]string {
	good := h.argument("", "medium", "memory")
	clear, err := json.Marshal(map[string]string{"kubernetes.io/secret/password": h.secret, "medium": "memory"}) // no base64
	if err != nil {
		h.Fatal(err)
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(h.secret))
	return [][]string{
		{good},
		{"mount"},
		{"mount", good},
		{"mount", good, h.pod},
		{"mount", h.pod, good, good},
		{"mount", h.pod, "-v", good},
		{"mount", h.pod, string(clear)},
		{"mount", h.pod, good + "x"},
		{"mount", h.pod, good[:len(good)-1]},
		{"mount", h.pod, strings.Replace(good, ":", "=", 1)},
		{"mount", h.pod, `{"kubernetes.io/secret/password":"` + encoded[:len(encoded)-3] + `"}`},
		{"mount", h.pod, `{"kubernetes.io/secret/password":["` + encoded + `"]}`},
		{"mount", h.pod, `{"kubernetes.io/secret/password":{"` + encoded + `":1}}`},
		{"mount", h.pod, `{"kubernetes.io/mounterArgs.FsGroup":"` + h.core + `","medium":"memory","kubernetes.io/secret/p":"` + encoded + `"}`},
		{"mount", h.pod, `{"kubernetes.io/readwrite":"` + h.core + `","medium":"memory","kubernetes.io/secret/p":"` + base64.StdEncoding.EncodeToString([]byte(h.core)) + `"}`},
		{"mount", h.pod, encoded},
		{"mount", h.pod, `"` + encoded + `"`},
		{"mount", good, good},
		{"unmount", good},
		{"unmount", h.pod, good},
		{"unmountdevice", good},
		{"detach", good, good},
		{"detach", good},
		{"attach", "node", good},
		{"attach", good},
		{"attach", good, good},
		{"isattached", good, good},
		{"isattached", good},
		{"waitforattach", good},
		{"waitforattach", good, good},
		{"mountdevice", h.global, good},
		{"mountdevice", good, good, good},
		{"expandfs", good},
		{"expandfs", good, good, good, good, good},
		{"expandfs", good, "", h.pod, good, "1"},
		{"expandvolume", good, "", "1", good},
		{"getvolumename", good, good},
		{"getvolumename", string(clear)},
		{"init", good},
		{"nonsense", good},
		{"mount " + good},
		{"", good},
		{"--nonsense", good},
		{"--timeout", good, "init"},
		{"--backend", good, "init"},
		{"--driver", good, "init"},
		{"--config", good, "mount", h.pod, good},
	}
}

// withHelpers mounts with credentials: a helper that works, one that talks and
// fails, and one that has to be ended.
func (h *leakHunt) withHelpers() {
	h.Helper()
	volumes := []string{
		h.argument("cifs", "source", "//server/share"),
		h.argument("cifs", "source", "//server/share", "mountOptions", "vers=3.0,credentials=$(secretFile:password)"),
		h.argument("ceph", "source", "mon:/", "mountOptions", "name=admin"),
		h.argument("fuse.flextest", "source", "bucket", "mountOptions", "passwd_file=$(secretFile:key)"),
	}
	names := []string{"cifs", "ceph", "fuse", "fuse.flextest"}
	for script, want := range map[string]string{
		`mount -i -t tmpfs "$1" "$2"`: `"Success"`,
		talkative:                     "exit status 32",
		talkative[:strings.LastIndex(talkative, "exit")] + "exec sleep 60": "still in progress",
	} {
		remove := h.helper(names, script)
		for _, volume := range volumes {
			flags := []string{"--log-file", h.log, "-vvv"}
			if strings.Contains(script, "sleep") {
				flags = append(flags, "--timeout", "1s")
			}
			answer := h.run(append(flags, "mount", h.pod, volume)...)
			if !strings.Contains(answer, want) {
				h.Errorf("%s is not in the answer %s", want, answer)
			}
			if script == talkative && !strings.Contains(answer, "[redacted]") {
				h.Errorf("nothing was redacted, so nothing was searched: %s", answer)
			}
			h.run("unmount", h.pod)
		}
		remove()
	}
}
