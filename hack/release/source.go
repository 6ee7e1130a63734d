package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// A release is a version that is being made.
type release struct {
	version, chartVersion string
	revision              string    // the commit
	time                  time.Time // of the commit
	clone                 string    // of the repository, at the commit
	dir                   string    // of the files
	log                   io.Writer
}

// checkout clones the commit of a repository. It refuses what the bytes would not say:
// uncommitted changes, and a version that is another commit or not that of the manifests.
func (r *release) checkout(ctx context.Context, source string) error {
	changed, err := command(ctx, source, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		first, _, _ := strings.Cut(changed, "\n")
		return fmt.Errorf("make a release of %s: the tree has changes (%s …); commit, stash or remove them", source, strings.TrimSpace(first))
	}
	if r.revision, err = command(ctx, source, "git", "rev-parse", "HEAD"); err != nil {
		return err
	}
	// No tag: git says nothing and fails.
	if tagged, err := command(ctx, source, "git", "rev-parse", "--quiet", "--verify", "refs/tags/"+r.version+"^{commit}"); err == nil && tagged != r.revision {
		return fmt.Errorf("make a release of commit %s: the tag %s is commit %s; check that out", r.revision, r.version, tagged)
	}
	source, err = filepath.Abs(source)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"clone", "--quiet", "--no-tags", "--no-checkout", source, r.clone},
		{"-C", r.clone, "-c", "core.autocrlf=false", "-c", "advice.detachedHead=false", "checkout", "--quiet", r.revision},
		// Go writes it into the programs.
		{"-C", r.clone, "tag", r.version},
	} {
		if _, err := command(ctx, ".", "git", args...); err != nil {
			return err
		}
	}
	seconds, err := command(ctx, r.clone, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	r.time = time.Unix(unix, 0).UTC()
	return r.checkVersion()
}

// checkVersion: the manifests install the image of the version. A test compares the
// chart with the others.
func (r *release) checkVersion() error {
	const file = "install/chart/flex2csi/Chart.yaml"
	text, err := os.ReadFile(filepath.Join(r.clone, file))
	if err != nil {
		return err
	}
	var chart struct{ Version, AppVersion string }
	if err := yaml.Unmarshal(text, &chart); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if chart.AppVersion != r.version {
		return fmt.Errorf("make a release %s: the manifests install %s (appVersion in %s); change the version in all places, which make test-install compares", r.version, chart.AppVersion, file)
	}
	r.chartVersion = chart.Version
	return nil
}

// command runs a command, and returns what it prints.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = environment()
	var problem strings.Builder
	cmd.Stderr = &problem
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(problem.String()))
	}
	return strings.TrimSpace(string(out)), nil
}

// environment returns the process's own, without what changes the programs, and without
// what the make around this has for itself.
func environment(more ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=") || strings.HasPrefix(v, "GIT_") || strings.HasPrefix(v, "SOURCE_DATE_EPOCH=")
	})
	return slices.Concat(env, []string{
		"CGO_ENABLED=0", "GOFLAGS=-trimpath -tags=grpcnotrace", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off",
	}, more)
}
