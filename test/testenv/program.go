package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Program returns the absolute path of one of the project's programs: that
// which an environment variable names, as make sets it, or else one that is
// built into dir as it is released. pkg is relative to the test's directory.
func Program(dir, env, pkg string) (string, error) {
	if path := os.Getenv(env); path != "" {
		if !filepath.IsAbs(path) {
			return "", fmt.Errorf("%s=%s is no absolute path", env, path)
		}
		return path, nil
	}
	name := filepath.Base(pkg)
	path := filepath.Join(dir, name)
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("no go command to build %s with; name one that is built with %s", name, env)
	}
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, strings.TrimSpace(string(out)))
	}
	return path, nil
}
