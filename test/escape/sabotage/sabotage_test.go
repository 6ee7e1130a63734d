package sabotage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/test/testenv"
)

const (
	// root is the project's directory.
	root = "../../.."
	// attempts have to be enough to find what is broken.
	attempts = "30000"
	// envSabotage is a regular expression of names. Without it there are all.
	envSabotage = "SABOTAGE"
)

// A sabotage is a check that is taken out of the source.
type sabotage struct {
	name string
	// want is what is to be found, as a regular expression.
	want string
	// edits are all that has to be changed: some checks stand behind others.
	edits []edit
}

// An edit has new take the place of old, which file has once.
type edit struct{ file, old, new string }

// TestSabotage has each missing check be found.
func TestSabotage(t *testing.T) {
	names := regexp.MustCompile(os.Getenv(envSabotage))
	testenv.Need(t, "prog:go")
	attack := filepath.Join(t.TempDir(), "escape.test")
	if err := inRoot(exec.Command("go", "test", "-c", "-o", attack, "./test/escape")); err != nil {
		t.Fatal(err)
	}
	for _, s := range sabotages() {
		if !names.MatchString(s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if err := s.isFound(t, attack); err != nil {
				t.Error(err)
			}
		})
	}
}

// isFound is an error unless the attack finds what is missing, before anything else.
func (s *sabotage) isFound(t *testing.T, attack string) error {
	dir := t.TempDir()
	overlay, err := s.overlay(dir)
	if err != nil {
		return err
	}
	binary := filepath.Join(dir, "flexdriver")
	build := exec.Command("go", "build", "-overlay", overlay, "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", binary, "./cmd/flexdriver")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := inRoot(build); err != nil {
		return err
	}
	cmd := exec.Command(attack, "-test.v", "-test.run=^TestEscape$", "-test.timeout=20m")
	cmd.Dir, cmd.Env = "..", append(os.Environ(), "FLEXDRIVER_BINARY="+binary, "ESCAPE_COUNT="+attempts)
	output, ended := cmd.CombinedOutput()
	found := regexp.MustCompile(`ESCAPE: (.*)\n.*(attempt .*)`).FindAllSubmatch(output, -1)
	if ended == nil || len(found) == 0 {
		return fmt.Errorf("nothing was found: %v\n%s", ended, output[max(0, len(output)-4<<10):])
	}
	for _, f := range found {
		if !regexp.MustCompile(s.want).Match(f[1]) {
			return fmt.Errorf("found was not %q but %s\n%s", s.want, f[1], f[2])
		}
		t.Logf("%s: %s", bytes.TrimSpace(f[2]), f[1])
	}
	return nil
}

func inRoot(cmd *exec.Cmd) error {
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// overlay writes the changed files, and what go build wants to know of them.
func (s *sabotage) overlay(dir string) (string, error) {
	changed := map[string]string{}
	for _, e := range s.edits {
		source, known := changed[e.file]
		if !known {
			content, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return "", err
			}
			source = string(content)
		}
		if n := strings.Count(source, e.old); n != 1 {
			return "", fmt.Errorf("%s has %d times what is to be taken out, want once: look at list_test.go:\n%s", e.file, n, e.old)
		}
		changed[e.file] = strings.Replace(source, e.old, e.new, 1)
	}
	replace := map[string]string{}
	for file, source := range changed {
		path, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		replace[path] = filepath.Join(dir, strings.ReplaceAll(file, "/", "_")+".txt") // nothing that go list finds
		if err := os.WriteFile(replace[path], []byte(source), 0o644); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(err, os.WriteFile(overlay, text, 0o644))
}

// TestSource sees to it that the changes fit the source as it is.
func TestSource(t *testing.T) {
	for _, s := range sabotages() {
		if _, err := s.overlay(t.TempDir()); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if _, err := regexp.Compile(s.want); err != nil || s.want == "" {
			t.Errorf("%s: want %q: %v", s.name, s.want, err)
		}
	}
}
