package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flex2csi/flex2csi/internal/testenv"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A leakHunt runs the driver with a secret that is found nowhere else, and
// looks for it in all that the driver lets out: its answer, its log, the
// arguments and environments of the programs that it starts, and files.
type leakHunt struct {
	*testing.T
	secret, core string   // the core survives every escaping
	spellings    []string // what must not be found
	dir          string   // holds everything else
	driver       string
	pod, global  string
	log          string
	runs         int
	programs     int // that the driver has started
	answered     int // lines of the log that say so
}

func newLeakHunt(t *testing.T, before, after string) *leakHunt {
	t.Helper()
	testenv.Need(t, "root", "mount", "prog:strace", "prog:mount")
	var random [15]byte
	_, _ = rand.Read(random[:]) // never fails
	core := hex.EncodeToString(random[:])
	h := &leakHunt{T: t, core: core, secret: before + core + after, dir: t.TempDir()}
	testenv.LeakCheck(t, h.dir)
	h.spellings = spellingsOf(h.secret, core)
	plugin := filepath.Join(h.dir, "plugins/example.com~disk")
	h.driver = filepath.Join(plugin, "disk")
	h.pod = filepath.Join(h.dir, "kubelet/pods/uid/volumes/example.com~disk/data")
	h.global = filepath.Join(h.dir, "kubelet/plugins/kubernetes.io/flexvolume/example.com/disk/mounts/data")
	h.log = filepath.Join(h.dir, "log")
	for _, dir := range []string{plugin, h.pod, h.global, filepath.Join(h.dir, "trace")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(os.Getenv(envBinary), h.driver); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(plugin, ".flexdriver.json"), []byte(scriptConfig), 0o644); err != nil {
		t.Fatal(err)
	}
	return h
}

// spellingsOf is the core for what is written in clear, quoted or escaped, and
// base64 in its forms, with what a Secret often has behind it.
func spellingsOf(secret, core string) []string {
	all := []string{core, strings.ToUpper(core), url.QueryEscape(secret), url.PathEscape(secret)}
	for _, s := range []string{secret, secret + "\n", core} {
		for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
			all = append(all, e.EncodeToString([]byte(s)))
		}
	}
	// Within other text, at each of the three offsets that there can be.
	for offset := range 3 {
		shifted := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", offset) + core))
		all = append(all, shifted[4:len(shifted)-4])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// argument is the JSON of a call with secrets.
func (h *leakHunt) argument(fsType string, pairs ...string) string {
	h.Helper()
	o := flex.Options{FSType: fsType, VolumeName: "data", User: map[string]string{}, Secrets: map[string]flex.Secret{
		"password": flex.NewSecret([]byte(h.secret)),
		"username": flex.NewSecret([]byte("anna")),
		"key":      flex.NewSecret([]byte(h.secret)),
		"newline":  flex.NewSecret([]byte(h.secret + "\n")),
	}}
	for i := 0; i < len(pairs); i += 2 {
		o.User[pairs[i]] = pairs[i+1]
	}
	text, err := o.MarshalArgument()
	if err != nil {
		h.Fatal(err)
	}
	return text
}

// run calls the driver under strace and searches all that came of it. The
// answer is returned.
func (h *leakHunt) run(args ...string) string {
	h.Helper()
	h.runs++
	trace := filepath.Join(h.dir, "trace", fmt.Sprint(h.runs))
	ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "strace", append([]string{"-f", "-v", "-q", "-s", "100000", "-e", "trace=execve,execveat", "-o", trace, h.driver}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		h.Fatal(err)
	}
	h.search("stdout", stdout.String(), args)
	h.search("stderr", stderr.String(), args)
	if log, err := os.ReadFile(h.log); err == nil {
		h.search("log", string(log), args)
		h.answered += strings.Count(string(log), `"answered"`)
		if err := os.Truncate(h.log, 0); err != nil {
			h.Fatal(err)
		}
	}
	h.search("arguments or environment of a program", h.started(trace), args)
	h.searchFiles(args)
	return stdout.String()
}

// started returns the calls of execve but for the first, which is the
// kubelet's own.
func (h *leakHunt) started(trace string) string {
	h.Helper()
	text, err := os.ReadFile(trace)
	if err != nil {
		h.Fatal(err)
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	if !strings.Contains(first, "execve("+fmt.Sprintf("%q", h.driver)) {
		h.Fatalf("the trace begins with %.200s", first)
	}
	h.programs += strings.Count(rest, "execve(")
	return rest
}

// searchFiles looks into all files of the node that the driver can have written.
func (h *leakHunt) searchFiles(args []string) {
	h.Helper()
	for _, dir := range []string{filepath.Join(h.dir, "kubelet"), filepath.Join(h.dir, "plugins"), filepath.Join(h.dir, "images"), "/run/mount", "/dev/shm"} {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || path == h.driver {
				return nil //nolint:nilerr // others' files come and go
			}
			if info, err := d.Info(); err != nil || info.Size() > 1<<20 {
				return nil //nolint:nilerr // as above
			}
			h.search(path, path, args)
			if text, err := os.ReadFile(path); err == nil {
				h.search(path, string(text), args)
			}
			return nil
		})
	}
}

func (h *leakHunt) search(where, text string, args []string) {
	h.Helper()
	for _, s := range h.spellings {
		if at := strings.Index(text, s); at >= 0 {
			h.Fatalf("the secret, as %q, is in the %s of %.1000q:\n…%s…", s, where, args, text[max(0, at-200):min(len(text), at+len(s)+50)])
		}
	}
}

// helper lays a mount program into /sbin, where mount(8) looks for it.
func (h *leakHunt) helper(names []string, script string) (remove func()) {
	h.Helper()
	sbin, err := filepath.EvalSymlinks("/sbin")
	if err != nil {
		h.Fatal(err)
	}
	upper, work := filepath.Join(h.dir, "upper"), filepath.Join(h.dir, "work")
	for _, dir := range []string{upper, work} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			h.Fatal(err)
		}
	}
	if err := unix.Mount("overlay", sbin, "overlay", 0, "lowerdir="+sbin+",upperdir="+upper+",workdir="+work); err != nil {
		h.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(sbin, "mount."+name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			h.Fatal(err)
		}
	}
	return func() {
		if err := unix.Unmount(sbin, unix.MNT_DETACH); err != nil {
			h.Error(err)
		}
	}
}

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

func (h *leakHunt) report() {
	h.Helper()
	h.Logf("%d calls, which started %d programs", h.runs, h.programs)
	if h.programs < 5 {
		h.Errorf("only %d programs were started, so little was searched", h.programs)
	}
	if h.answered == 0 {
		h.Error("nothing was in the log")
	}
}

// volumes are good and bad ones, with the secret where nobody should put it.
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
		"device: label":       h.argument("", "device", "LABEL="+h.secret),
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

// malformed are calls that nobody should make, with the secret in places where
// an error message might show it.
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
