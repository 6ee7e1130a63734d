package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// A platform has programs. Nodes run Linux; others are for laptops.
type platform struct {
	os, arch string
	programs []string
}

func platforms() []platform {
	node, laptop := []string{"flex2csi", "flexdriver"}, []string{"flex2csi"}
	return []platform{
		{"linux", "amd64", node},
		{"linux", "arm64", node},
		{"darwin", "amd64", laptop},
		{"darwin", "arm64", laptop},
		{"windows", "amd64", laptop},
		{"windows", "arm64", laptop},
	}
}

// file returns the name of a program's file.
func (p platform) file(program string) string {
	if p.os == "windows" {
		return program + ".exe"
	}
	return program
}

func (p platform) String() string { return p.os + "_" + p.arch }

// built is where a program is, when it is built.
func (r *release) built(p platform, program string) string {
	return filepath.Join(r.clone, "bin/release", p.os, p.arch, p.file(program))
}

// image is the archive, as make image writes it.
const image = "flex2csi-image.tar"

// build makes the image with its programs, flex2csi for laptops, and the man pages.
func (r *release) build(ctx context.Context) error {
	if err := r.show(ctx, nil, "make", "--no-print-directory", "image", "VERSION="+r.version, "PLATFORMS=linux/amd64,linux/arm64", "BUILDVCS=true", "ARCHIVE=bin/"+image); err != nil {
		return err
	}
	for _, p := range platforms() {
		if p.os != "linux" {
			fmt.Fprintf(r.log, "go build for %s/%s\n", p.os, p.arch)
			env := []string{"GOOS=" + p.os, "GOARCH=" + p.arch}
			if err := r.show(ctx, env, "go", "build", "-buildvcs=true", "-ldflags", "-s -w", "-o", r.built(p, "flex2csi"), "./cmd/flex2csi"); err != nil {
				return err
			}
		}
		for _, program := range p.programs {
			if err := r.verify(p, program); err != nil {
				return err
			}
		}
	}
	return r.show(ctx, nil, "make", "--no-print-directory", "manual")
}

// verify checks that a program says of itself what it is a release of.
func (r *release) verify(p platform, program string) error {
	info, err := buildinfo.ReadFile(r.built(p, program))
	if err != nil {
		return err
	}
	got := map[string]string{"version": info.Main.Version}
	for _, s := range info.Settings {
		got[s.Key] = s.Value
	}
	for key, want := range map[string]string{
		"version": r.version, "vcs.revision": r.revision, "vcs.modified": "false", "GOOS": p.os, "GOARCH": p.arch, "-trimpath": "true", "-tags": "grpcnotrace", "CGO_ENABLED": "0",
	} {
		if got[key] != want {
			return fmt.Errorf("check %s of %s: its build information has %s %q, want %q", program, p, key, got[key], want)
		}
	}
	return nil
}

// show runs a command in the clone, and shows what it says.
func (r *release) show(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = r.clone, environment(env...)
	cmd.Stdout, cmd.Stderr = r.log, r.log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}
