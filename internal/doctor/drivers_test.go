package doctor_test

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/doctor"
	"github.com/flex2csi/flex2csi/test/testenv"
)

const answer = `#!/bin/sh
touch "$(dirname "$0")/.ran"
echo '{"status":"Success","capabilities":{"attach":false}}'
`

// TestBrokenDrivers: one of each kind that a kubelet stumbles over, and none of
// them is started.
func TestBrokenDrivers(t *testing.T) {
	testenv.Need(t, "mount")
	n := newNode(t)
	n.shared(n.Root)
	in := func(name string) string { return filepath.Join(n.PluginDir, name) }
	n.write(in("example.com~fine/fine"), answer, 0o755)
	n.write(in("example.com~locked/locked"), answer, 0o644)
	n.write(in("example.com~open/open"), answer, 0o777)
	n.write(in("example.com~windows/windows"), strings.ReplaceAll(answer, "\n", "\r\n"), 0o755)
	n.write(in("example.com~python/python"), "#!/usr/bin/no-such-python\n", 0o755)
	n.write(in("example.com~text/text"), "echo hello\n", 0o755)
	n.write(in("example.com~empty/empty"), "", 0o755)
	n.write(in("example.com~other/other"), foreign(t), 0o755)
	n.write(in("example.com~misnamed/wrong"), answer, 0o755)
	n.write(in("novendor/novendor"), answer, 0o755)
	n.write(in(".tmp/copy"), answer, 0o755)
	n.write(in(".example.com~half.new/.executable.new"), answer, 0o755)
	n.write(in("README"), "", 0o644)
	if err := os.Mkdir(in("nodeagent~uds"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(in("example.com~fine"), in("example.com~link")); err != nil {
		t.Fatal(err)
	}
	r := n.run()
	want(t, r, n.PluginDir+"/",
		"driver-not-executable example.com~locked/locked",
		"driver-untrusted example.com~open/open",
		"driver-cannot-start example.com~windows/windows",
		"driver-cannot-start example.com~python/python",
		"driver-cannot-start example.com~text/text",
		"driver-cannot-start example.com~empty/empty",
		"driver-cannot-start example.com~other/other",
		"driver-executable-missing example.com~misnamed",
		"driver-executable-missing nodeagent~uds",
		"driver-name novendor",
		"driver-dir-is-link example.com~link",
		"plugin-dir-dot-folder .tmp",
		"plugin-dir-stray-file README",
		"install-interrupted .example.com~half.new",
	)
	wantText(t, r, "it wants /usr/bin/no-such-python, which is not there", "lines end as on Windows", "the directory is empty",
		"FlexVolume: driver call failed: executable:", "rm -r "+in("nodeagent~uds"), "with --probe-drivers that is done")
	if ran, _ := filepath.Glob(in("*/.ran")); len(ran) > 0 {
		t.Errorf("these were started: %s", ran)
	}
}

// foreign is a program for another processor.
func foreign(t *testing.T) string {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	const machine = 18 // e_machine
	binary.LittleEndian.PutUint16(self[machine:], uint16(elf.EM_SPARCV9))
	return string(self[:64<<10])
}

// TestProbeDrivers: the answers of the drivers, on request. Drivers that hang do not
// delay the others.
func TestProbeDrivers(t *testing.T) {
	testenv.Need(t, "mount")
	n := newNode(t)
	n.shared(n.Root)
	n.o.ProbeDrivers, n.o.Timeout = true, 4*time.Second
	in := func(name string) string { return filepath.Join(n.PluginDir, name) }
	n.write(in("example.com~fine/fine"), answer, 0o755)
	n.write(in("example.com~slow/slow"), "#!/bin/sh\nsleep 1.2\necho '{\"status\":\"Success\"}'\n", 0o755)
	n.write(in("example.com~hung/hung"), "#!/bin/sh\nsleep 60 & wait\n", 0o755)
	n.write(in("example.com~usage/usage"), "#!/bin/sh\necho usage: password=canary\n", 0o755)
	n.write(in("example.com~null/null"), "#!/bin/sh\necho '{\"status\":\"Success\",\"capabilities\":null}'\n", 0o755)
	n.write(in("example.com~fails/fails"), "#!/bin/sh\necho '{\"status\":\"Failure\",\"message\":\"no jq\"}'\nexit 1\n", 0o755)
	start := time.Now()
	r := n.run()
	if took := time.Since(start); took > n.o.Timeout+2*time.Second {
		t.Errorf("it took %v", took)
	}
	want(t, r, n.PluginDir+"/",
		"driver-init-slow example.com~slow",
		"driver-init-fails example.com~hung",
		"driver-init-fails example.com~usage",
		"driver-init-fails example.com~null",
		"driver-init-fails example.com~fails",
	)
	wantText(t, r, "no jq", "would crash the kubelet", "not one JSON object", "no answer after 2s")
	if strings.Contains(text(t, r), "canary") {
		t.Error("there is a secret in the report")
	}
}

// TestWrittenDriver: a log next to the driver makes the kubelet run init again.
func TestWrittenDriver(t *testing.T) {
	testenv.Need(t, "mount")
	n := newNode(t)
	n.shared(n.Root)
	dir := filepath.Join(n.PluginDir, "example.com~disk")
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(n.write(filepath.Join(dir, "disk"), answer, 0o755), old, old); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(n.write(filepath.Join(dir, "README"), "", 0o644), old, old); err != nil {
		t.Fatal(err)
	}
	n.write(filepath.Join(dir, "logs/disk.log"), "mounted\n", 0o644)
	r := n.run()
	want(t, r, n.PluginDir+"/", "driver-dir-written example.com~disk")
	if f := found(r, "driver"); len(f) != 1 || f[0].Severity != doctor.OK {
		t.Errorf("the driver itself: %v", f)
	}
}
