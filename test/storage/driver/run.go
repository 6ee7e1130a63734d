package driver

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// run runs a program, and returns what it said as an error if it fails.
func run(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// mount is mount(8). Its errors read as those of k8s.io/mount-utils, which most CSI drivers pass
// on: they do not have the sensitive options.
func mount(ctx context.Context, sensitive []string, fsType, source, dir string, options ...string) error {
	args := func(options []string) []string {
		args := []string{"-t", fsType}
		if len(options) > 0 {
			args = append(args, "-o", strings.Join(options, ","))
		}
		return append(args, source, dir)
	}
	out, err := exec.CommandContext(ctx, "mount", args(slices.Concat(options, sensitive))...).CombinedOutput()
	if err == nil {
		return nil
	}
	masked := slices.Clone(options)
	for range sensitive {
		masked = append(masked, "<masked>")
	}
	return fmt.Errorf("mount failed: %w\nMounting command: mount\nMounting arguments: %s\nOutput: %s", err, strings.Join(args(masked), " "), out)
}

func bind(ctx context.Context, source, dir string, readOnly bool) error {
	if err := run(ctx, "mount", "--bind", source, dir); err != nil || !readOnly {
		return err
	}
	return run(ctx, "mount", "-o", "remount,bind,ro", dir)
}
