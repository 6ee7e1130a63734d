package sabotage

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// root is the project's directory.
const root = "../../.."

// TestSabotage has each scenario find what is broken.
func TestSabotage(t *testing.T) {
	wanted := regexp.MustCompile(os.Getenv("SABOTAGE"))
	for _, s := range sabotages() {
		if !wanted.MatchString(s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			dir, err := filepath.Abs(filepath.Join(root, "bin", "e2e", "sabotage", s.name))
			if err == nil { // what was there is of another run
				err = errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755))
			}
			if err == nil {
				err = s.isFound(dir)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// isFound is an error unless the scenario fails, and for the right reason.
func (s *sabotage) isFound(dir string) error {
	env := []string{"SCENARIO=^" + s.scenario + "$", "E2E_RESULTS=" + dir, "E2E_PATIENCE=25s", "E2E_JOB=300"}
	if s.file != "" {
		image, err := s.image(dir)
		if err != nil {
			return err
		}
		env = append(env, "E2E_IMAGE="+image, "FLEX2CSI_BINARY="+filepath.Join(dir, "flex2csi"))
	}
	if s.patches != "" {
		if err := s.install(dir); err != nil {
			return err
		}
		env = append(env, "E2E_INSTALL="+dir)
	}
	output, ended := s.run(env, filepath.Join(dir, "output.txt"))
	table, err := os.ReadFile(filepath.Join(dir, "table.txt"))
	if err != nil {
		return fmt.Errorf("%w (%v)\n%s", err, ended, tail(output))
	}
	switch {
	case ended == nil || !regexp.MustCompile(`(?m)^`+s.scenario+` +FAILED`).Match(table):
		return fmt.Errorf("scenario %s did not fail: %v\n%s", s.scenario, ended, table)
	case !regexp.MustCompile(s.want).Match(output):
		return fmt.Errorf("scenario %s did not fail with %q but with\n%s", s.scenario, s.want, tail(output))
	}
	return nil
}

// run runs the scenario, on a node of its own, and returns what it has said to a
// file, and how it ended.
func (s *sabotage) run(env []string, file string) (output []byte, ended error) {
	program, err := filepath.Abs(filepath.Join(root, "bin", "e2e.test"))
	if err != nil {
		return nil, err
	}
	out, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(program, "-test.v", "-test.run=^TestScenarios$", "-test.timeout=15m")
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "..", append(os.Environ(), env...), out, out
	ended = cmd.Run()
	output, err = os.ReadFile(file)
	return output, errors.Join(ended, err)
}

func tail(output []byte) []byte { return output[max(0, len(output)-4<<10):] }

// image builds the programs from the changed source, and an image of them under
// the usual name. The source itself stays as it is.
func (s *sabotage) image(dir string) (string, error) {
	overlay, err := s.overlay(dir)
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", dir+"/", "./cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := inRoot(build); err != nil {
		return "", err
	}
	archive := filepath.Join(dir, "image.tar")
	return archive, inRoot(exec.Command("bin/image", "-o", archive, "--name", "ghcr.io/flex2csi/flex2csi:v0.1.0",
		"--user", "65532:65532", "--entrypoint", "/flex2csi",
		"--file", "/flex2csi="+filepath.Join(dir, "flex2csi")+":0755", "--file", "/flexdriver="+filepath.Join(dir, "flexdriver")+":0755"))
}

func inRoot(cmd *exec.Cmd) error {
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// overlay writes the changed file, and what go build wants to know of it.
func (s *sabotage) overlay(dir string) (string, error) {
	file, err := filepath.Abs(filepath.Join(root, s.file))
	if err != nil {
		return "", err
	}
	source, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), s.old); n != 1 {
		return "", fmt.Errorf("%s has what is to be broken %d times, want once: look at list_test.go", s.file, n)
	}
	broken := filepath.Join(dir, "broken.txt") // nothing that go list finds
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: broken}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(
		os.WriteFile(broken, []byte(strings.Replace(string(source), s.old, s.new, 1)), 0o644),
		os.WriteFile(overlay, replace, 0o644))
}

// install writes a kustomization of what is installed otherwise, with the patches.
func (s *sabotage) install(dir string) error {
	usual, err := filepath.Abs("../manifests/flex2csi")
	if err != nil {
		return err
	}
	if usual, err = filepath.Rel(dir, usual); err != nil {
		return err
	}
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s]\npatches:%s", usual, s.patches)
	return os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o644)
}

// TestSource sees to it that the changes fit the source as it is, without a node.
func TestSource(t *testing.T) {
	for _, s := range sabotages() {
		if s.file == "" {
			continue
		}
		if _, err := s.overlay(t.TempDir()); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
	}
}
