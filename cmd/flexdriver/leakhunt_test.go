package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
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

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/testenv"
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
	if err := os.WriteFile(filepath.Join(plugin, ".flexdriver.json"), []byte(scriptConfig(filepath.Join(h.dir, "images"))), 0o644); err != nil {
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
	o := flex.Options{FSType: fsType, VolumeName: "data", PodNamespace: "images", User: map[string]string{}, Secrets: map[string]flex.Secret{
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
