package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/hack/image/sbom"
)

// pack writes the archives, the image and the SBOMs.
func (r *release) pack(ctx context.Context) error {
	if err := r.writeCompletions(ctx); err != nil {
		return err
	}
	for _, p := range platforms() {
		if err := r.packPrograms(p); err != nil {
			return err
		}
		if p.os != "linux" {
			continue
		}
		from := filepath.Join(r.clone, "bin/flex2csi-"+p.os+"-"+p.arch+".cdx.json")
		if err := os.Rename(from, r.file("flex2csi-image", p.String()+".cdx.json")); err != nil {
			return err
		}
	}
	if err := os.Rename(filepath.Join(r.clone, "bin", image), r.file("flex2csi-image", "oci.tar")); err != nil {
		return err
	}
	return r.packManifests()
}

// file returns the path of a download.
func (r *release) file(name, rest string) string {
	return filepath.Join(r.dir, name+"_"+r.version+"_"+rest)
}

// packPrograms writes the archive of a platform, with the man pages of its programs, and what each
// program is made of.
func (r *release) packPrograms(p platform) error {
	entries := []entry{{name: "LICENSE", path: filepath.Join(r.clone, "LICENSE")}}
	for _, program := range p.programs {
		path := r.built(p, program)
		entries = append(entries, entry{p.file(program), path, true})
		bill, err := sbom.Program(sbom.File{Name: program + "_" + p.String(), Path: path})
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.file(program, p.String()+".cdx.json"), bill, 0o644); err != nil {
			return err
		}
	}
	for _, dir := range []string{"completions", "man"} {
		more, err := tree(filepath.Join(r.clone, dir), dir, func(page string) bool {
			return dir == "man" && !slices.ContainsFunc(p.programs, func(program string) bool { return strings.HasPrefix(page, program) })
		})
		if err != nil {
			return err
		}
		entries = append(entries, more...)
	}
	if p.os == "windows" {
		return archiveZip(r.archiveOf(p), entries, r.time)
	}
	return archive(r.archiveOf(p), entries, r.time)
}

// writeCompletions has flex2csi for this machine say them. They are the same for all.
func (r *release) writeCompletions(ctx context.Context) error {
	dir := filepath.Join(r.clone, "completions")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	program := r.built(platform{os: runtime.GOOS, arch: runtime.GOARCH}, "flex2csi")
	for shell, file := range map[string]string{"bash": "flex2csi.bash", "zsh": "_flex2csi", "fish": "flex2csi.fish", "powershell": "flex2csi.ps1"} {
		script, err := command(ctx, r.clone, program, "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(script+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// archiveOf returns the archive with the programs of a platform. Windows opens .zip by itself;
// krew takes both (https://krew.sigs.k8s.io/docs/developer-guide/distributing-with-krew/).
func (r *release) archiveOf(p platform) string {
	if p.os == "windows" {
		return r.file("flex2csi", p.String()+".zip")
	}
	return r.file("flex2csi", p.String()+".tar.gz")
}

// packManifests writes the chart, by the name that Helm expects, and what kubectl apply -k
// takes.
func (r *release) packManifests() error {
	install := filepath.Join(r.clone, "install")
	chart, err := tree(filepath.Join(install, "chart/flex2csi"), "flex2csi", func(name string) bool { return name == ".helmignore" })
	if err != nil {
		return err
	}
	if err := archive(filepath.Join(r.dir, "flex2csi-"+r.chartVersion+".tgz"), chart, r.time); err != nil {
		return err
	}
	manifests, err := tree(install, "flex2csi-"+r.version, func(name string) bool { return strings.HasPrefix(name, "chart/") })
	if err != nil {
		return err
	}
	return archive(r.file("flex2csi", "manifests.tar.gz"), manifests, r.time)
}
