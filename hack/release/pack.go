package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/flex2csi/flex2csi/hack/image/sbom"
)

// pack writes the archives, the image and the SBOMs.
func (r *release) pack() error {
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

// packPrograms writes the archive of a platform, and what each of its programs is made of.
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
	if p.os == "windows" {
		return archiveZip(r.archiveOf(p), entries, r.time)
	}
	return archive(r.archiveOf(p), entries, r.time)
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
