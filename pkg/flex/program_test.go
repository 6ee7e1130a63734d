package flex_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a person calls is what the kubelet calls, with flags before it.
func byHand(t *testing.T, behaviour string, args ...string) (output string, status int) {
	t.Helper()
	cmd := driverCommand(t, behaviour, args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestEveryDriverHasALog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	for _, args := range [][]string{{"--log-file", file}, {"--log-file", file, "-v"}, {"-v"}} {
		if out, status := byHand(t, "logs", append(args, "mount", podDir, secretJSON)...); out != "{\"status\":\"Success\"}\n" || status != 0 {
			t.Fatalf("%q: %d, %q", args, status, out)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(lines) != 3 || strings.Contains(string(data), "hunter2") {
		t.Fatalf("want answered, mounting, answered, and no secret:\n%s", data)
	}
	for i, want := range []string{"answered", "mounting", "answered"} {
		var line struct{ Msg, Command, Status, Password string }
		if err := json.Unmarshal([]byte(lines[i]), &line); err != nil || line.Msg != want {
			t.Errorf("line %d is %s (%v), want %s", i, lines[i], err, want)
		}
		if want == "answered" && (line.Command != "mount" || line.Status != "Success") || want == "mounting" && line.Password != "[redacted]" {
			t.Errorf("line %d is %s", i, lines[i])
		}
	}
}

// The last line of the log is what the kubelet has read, also if nothing comes any more.
func TestLogOfWhatIsStuck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	if out, _ := byHand(t, "is stuck", "--log-file", file, "mount", podDir, secretJSON); !strings.Contains(out, "has not stopped within 1s") {
		t.Error(out)
	}
	data, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(data), `"msg":"answered"`) || !strings.Contains(string(data), "has not stopped within 1s") {
		t.Errorf("%v: %s", err, data)
	}
}

func TestEveryDriverHasFlagsForPeople(t *testing.T) {
	failure := func(message string) string {
		return `{"status":"Failure","message":"` + message + "\"}\n"
	}
	tests := []struct {
		name, behaviour string
		args            []string
		want            string
		status          int
	}{
		{"a plan", "plans", []string{"--dry-run", "mount", podDir, secretJSON}, " 1. open " + podDir + "\n 2. mount it with [redacted] of [redacted]\n", 0},
		{"a plan that fails", "plans", []string{"--dry-run", "unmount", podDir}, failure("no unmount today"), 0},
		{"no plan", "panics", []string{"--dry-run", "mount", podDir, secretJSON}, failure("this driver cannot say what it would do (it has no Plan); nothing was done"), 0},
		{"status of a success", "works", []string{"--exit-code", "mount", podDir, secretJSON}, "{\"status\":\"Success\"}\n", 0},
		{"status of a failure", "fails", []string{"--exit-code", "mount", podDir, secretJSON}, failure("password [redacted] refused"), 1},
		{"a deadline", "times out", []string{"--timeout=20ms", "mount", podDir, secretJSON}, failure("mount: still in progress after 20ms; call again"), 0},
		{"a flag that is none", "works", []string{"--dry", "mount", podDir, secretJSON}, failure("unknown flag: --dry; see flex.test --help"), 0},
	}
	for _, tt := range tests {
		if out, status := byHand(t, tt.behaviour, tt.args...); out != tt.want || status != tt.status {
			t.Errorf("%s: got status %d and %q, want %d and %q", tt.name, status, out, tt.status, tt.want)
		}
	}
	out, status := byHand(t, "works", "--help")
	for _, want := range []string{"Usage: flex.test [flags] CALLOUT", "--log-file file", "--dry-run", "mount, unmount"} {
		if !strings.Contains(out, want) || status != 0 {
			t.Errorf("--help ends with %d and lacks %q: %s", status, want, out)
		}
	}
}

// The kubelet passes no flags: a default holds for its calls, too.
func TestAFlagHasItsDefaultWithoutFlags(t *testing.T) {
	for want, args := range map[string][]string{"the default": nil, "another": {"--text", "another"}} {
		out, _ := byHand(t, "flag text", append(args, "mount", podDir, secretJSON)...)
		if out != `{"status":"Failure","message":"`+want+"\"}\n" {
			t.Errorf("with the flags %q: %s", args, out)
		}
	}
	if out, _ := byHand(t, "flag timeout", "init"); !strings.Contains(out, "flag redefined: timeout") {
		t.Errorf("a flag that every driver has: %s", out)
	}
}
