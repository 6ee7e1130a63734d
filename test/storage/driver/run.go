package driver

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// run runs a program, and returns what it said as an error if it fails.
func run(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(cmd.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// mount is mount(8).
func mount(ctx context.Context, env []string, fsType, source, dir string, options ...string) error {
	args := []string{"-t", fsType}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	return run(ctx, env, "mount", append(args, source, dir)...)
}

func bind(ctx context.Context, source, dir string, readOnly bool) error {
	if err := run(ctx, nil, "mount", "--bind", source, dir); err != nil || !readOnly {
		return err
	}
	return run(ctx, nil, "mount", "-o", "remount,bind,ro", dir)
}
