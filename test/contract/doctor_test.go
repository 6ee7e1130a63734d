package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/exec"
)

// TestDoctorAndProber: what flex2csi doctor says of drivers without starting
// them is what becomes of them in the kubelet: those that it calls broken are
// not registered, all others are.
func TestDoctorAndProber(t *testing.T) {
	// Not a node of the other tests, on which nothing may fail to start.
	dir := t.TempDir()
	n := &node{t: t, root: filepath.Join(dir, "kubelet"), pluginDir: filepath.Join(dir, "exec")}
	n.must(os.MkdirAll(filepath.Join(n.root, "pods"), 0o755))
	const script = "#!/bin/sh\necho '{\"status\":\"Success\",\"capabilities\":{\"attach\":false}}'\n"
	put := func(name, content string, mode os.FileMode) {
		path := filepath.Join(n.pluginDir, name)
		n.must(os.MkdirAll(filepath.Dir(path), 0o755))
		n.must(os.WriteFile(path, []byte(content), 0o600))
		n.must(os.Chmod(path, mode))
	}
	put("example.com~fine/fine", script, 0o755)
	put("example.com~locked/locked", script, 0o644)
	put("example.com~windows/windows", strings.ReplaceAll(script, "\n", "\r\n"), 0o755)
	put("example.com~python/python", "#!/usr/bin/no-such-python\n", 0o755)
	put("example.com~empty/empty", "", 0o755)
	put("example.com~misnamed/wrong", script, 0o755)
	put("novendor/novendor", script, 0o755)
	put("README", "", 0o644)
	n.must(os.Mkdir(filepath.Join(n.pluginDir, "nodeagent~uds"), 0o755))
	n.must(os.Mkdir(filepath.Join(n.pluginDir, ".tmp"), 0o755))
	n.must(os.Symlink("example.com~fine", filepath.Join(n.pluginDir, "example.com~link")))

	broken, noticed := n.doctor()
	prober := newProber(t.Context(), n.pluginDir, exec.New())
	n.must(prober.Init())
	events, err := prober.Probe()
	if err == nil {
		t.Error("the kubelet has nothing to say against any of them")
	}
	registered := map[string]bool{}
	for _, e := range events {
		registered[e.PluginName] = true
	}
	for dir, name := range map[string]string{
		"example.com~fine": "example.com/fine", "example.com~locked": "example.com/locked", "example.com~windows": "example.com/windows",
		"example.com~python": "example.com/python", "example.com~empty": "example.com/empty",
		"example.com~misnamed": "example.com/misnamed", "novendor": "novendor", "nodeagent~uds": "nodeagent/uds",
	} {
		if registered[name] == broken[dir] {
			t.Errorf("%s: the kubelet has it: %v; doctor calls it broken: %v", dir, registered[name], broken[dir])
		}
	}
	if registered["example.com/link"] || !noticed["driver-dir-is-link"] {
		t.Errorf("a symbolic link: the kubelet has it: %v; doctor notices it: %v", registered["example.com/link"], noticed["driver-dir-is-link"])
	}

	// A dot-folder is ignored, and what happens in it is not. (One that is made
	// later is ignored altogether, until the next start.)
	if noticed["plugin-dir-dot-folder"] {
		t.Error("doctor has something against an empty dot-folder")
	}
	put(".tmp/copy", "x", 0o644)
	eventually(t, "the kubelet runs what is not there", func() bool {
		_, err := prober.Probe()
		return err != nil && strings.Contains(err.Error(), ".tmp")
	})
	if _, noticed := n.doctor(); !noticed["plugin-dir-dot-folder"] {
		t.Error("doctor does not notice it")
	}
}

// doctor returns the directories of drivers that it has an error about, and the
// kinds of all that it has found.
func (n *node) doctor() (broken, noticed map[string]bool) {
	n.t.Helper()
	none := filepath.Join(n.t.TempDir(), "none")
	cmd := osexec.Command(n.binary("flex2csi"), "doctor", "--on=node", "-o=json", "--kubelet-pid=4194304",
		"--volume-plugin-dir", n.pluginDir, "--kubelet-dir", n.root, "--config", none, "--socket", none, "--state-dir", none)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if _, said := errors.AsType[*osexec.ExitError](err); err != nil && !said {
		n.t.Fatal(err)
	}
	var report struct {
		Findings []struct{ ID, Severity, Subject string }
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		n.t.Fatalf("%v: %s", err, said.String())
	}
	broken, noticed = map[string]bool{}, map[string]bool{}
	for _, f := range report.Findings {
		noticed[f.ID] = true
		if rel, err := filepath.Rel(n.pluginDir, f.Subject); err == nil && f.Severity == "error" {
			broken[strings.Split(rel, "/")[0]] = true
		}
	}
	return broken, noticed
}
