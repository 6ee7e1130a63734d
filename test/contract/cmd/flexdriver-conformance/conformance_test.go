package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain makes the test binary the program, where a test asks for that.
func TestMain(m *testing.M) {
	if os.Getenv("FLEXDRIVER_CONFORMANCE_TEST") != "" {
		main()
	}
	os.Exit(m.Run())
}

// conformance runs the program, and returns its results by their name.
func conformance(t *testing.T, volume *volumeFile, path string) (results map[string]string, status int) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, for a mount namespace")
	}
	args := []string{"-deadline", "20s"}
	if volume != nil {
		data, err := json.Marshal(volume)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "volume.json")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "-volume", file)
	}
	cmd := exec.Command("/proc/self/exe", append(args, path)...)
	cmd.Env = append(os.Environ(), "FLEXDRIVER_CONFORMANCE_TEST=1", "TMPDIR="+t.TempDir())
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	results = map[string]string{}
	for line := range strings.Lines(out.String()) {
		if len(line) > 11 && line[10] == ' ' {
			name, _, _ := strings.Cut(strings.TrimSpace(line[11:]), ": ")
			results[name] = strings.TrimSpace(line[:10])
		}
	}
	if t.Failed() || testing.Verbose() {
		t.Logf("%s%s", out.String(), stderr.String())
	}
	return results, cmd.ProcessState.ExitCode()
}

// driver writes a driver's script.
func driver(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "driver")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// good is a driver of a vendor that keeps the contract: a volume in memory.
const good = `
answer() { echo "{\"status\":\"$1\",\"message\":\"$2\"}"; exit 0; }
case $1 in
init) echo '{"status":"Success","capabilities":{"attach":false}}' ;;
mount)
	case $# in 3) ;; *) answer Failure arguments ;; esac
	case $3 in *'"size":"1m"'*) ;; *) answer Failure options ;; esac
	mode=rw
	case $3 in *'readwrite":"ro"'*) mode=ro ;; esac
	mountpoint -q "$2" || mount -t tmpfs -o size=1m,$mode none "$2" >/dev/null 2>&1 || answer Failure mount
	answer Success ;;
unmount)
	[ -n "$2" ] || answer Failure arguments
	mountpoint -q "$2" && { umount "$2" >/dev/null 2>&1 || answer Failure busy; }
	answer Success ;;
*) answer 'Not supported' ;;
esac
`

func TestGoodDriver(t *testing.T) {
	volume := &volumeFile{Options: map[string]string{"size": "1m"}, Secrets: map[string]string{"password": "hunter2-hunter2"}}
	results, status := conformance(t, volume, driver(t, good))
	for name, outcome := range results {
		if outcome != "ok" && (name != "expandfs" || outcome != "not tried") {
			t.Errorf("%s is %s", name, outcome)
		}
	}
	for _, name := range podChecks() {
		if results[name] != "ok" {
			t.Errorf("%s is %q", name, results[name])
		}
	}
	if status != 0 {
		t.Errorf("ended with %d", status)
	}
}

// Each of these drivers has one fault, and a check that finds it.
func TestFaultsAreFound(t *testing.T) {
	volume := &volumeFile{Options: map[string]string{"size": "1m"}, Secrets: map[string]string{"password": "hunter2-hunter2"}}
	tests := []struct{ fault, from, to, check string }{
		{"init says more", "init) echo", "init) echo hello; echo", "init"},
		{"capabilities are null", `{"attach":false}`, "null", "capabilities"},
		{"init is slow", "init) echo", "init) sleep 2; echo", "time of init"},
		{"an unknown callout succeeds", "answer 'Not supported'", "answer Success", "unknown callout"},
		{"arguments are not counted", "*) answer Failure arguments ;; esac", "*) answer Success ;; esac", "mount without options"},
		{"it mounts again", `mountpoint -q "$2" || mount`, "mount", "mount again"},
		{"it mounts nothing", "mount -t tmpfs -o size=1m,$mode none", "true", "mount"},
		{"read-only is ignored", "mode=ro", "mode=rw", "read-only"},
		{"unmount wants a mount", `mountpoint -q "$2" && {`, "{", "unmount of what is not mounted"},
		{"unmount twice fails", `mountpoint -q "$2" && {`, "{", "unmount again"},
		{"unmount does nothing", "umount \"$2\"", "true", "unmount"},
		{"a failure leaves a mount", "*) answer Failure options", `*) mount -t tmpfs none "$2"; answer Failure options`, "mount that fails leaves nothing"},
		{"it exits", `"; exit 0; }`, `"; exit 1; }`, "exit status 0, always"},
		{"it exits, and the kubelet logs", `"; exit 0; }`, `"; [ "$1" = Success ]; exit $?; }`, "no secret in the kubelet's log"},
		{"it tells secrets", "answer Failure options", `answer Failure "$(echo "$3" | tr -d '"')"`, "no secret in an answer"},
		{"a child stays", "	answer Success ;;\nunmount", "	sleep 5 & answer Success ;;\nunmount", "streams closed"},
		{"it hangs", "	mode=rw", "	sleep 1000", "deadline"},
	}
	for _, tt := range tests {
		t.Run(tt.fault, func(t *testing.T) {
			text := strings.Replace(good, tt.from, tt.to, 1)
			if text == good {
				t.Fatal("the driver has no such text")
			}
			results, status := conformance(t, volume, driver(t, text))
			if results[tt.check] != "not ok" || status != exitNotOK {
				t.Errorf("%s is %q, and the status %d", tt.check, results[tt.check], status)
			}
		})
	}
}

func TestWithoutVolumeNothingIsMounted(t *testing.T) {
	results, status := conformance(t, nil, driver(t, good))
	for _, name := range podChecks() {
		if results[name] != "not tried" {
			t.Errorf("%s is %q", name, results[name])
		}
	}
	if status != 0 || results["init"] != "ok" {
		t.Errorf("init is %q, and the status %d", results["init"], status)
	}
}

// Nothing to check is not "ok".
func TestNoDriver(t *testing.T) {
	if results, status := conformance(t, nil, filepath.Join(t.TempDir(), "none")); status != exitUsage || len(results) > 0 {
		t.Errorf("status %d, %v", status, results)
	}
}
