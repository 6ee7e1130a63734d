package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// sbomType is the media type of what sbom makes.
const sbomType = "application/vnd.cyclonedx+json"

// A bill is what is known of an image's programs. All of it is read from the
// programs themselves, where the linker has put it.
type bill struct {
	programs []cdx.Component
	modules  map[string]cdx.Component
	uses     []cdx.Dependency
}

// sbom writes the bill of materials of one platform's image, as CycloneDX. It
// has no serial number and no time, so that the same programs give the same one.
func (s *spec) sbom(platform v1.Platform) ([]byte, error) {
	b := bill{modules: map[string]cdx.Component{}}
	for _, file := range s.files {
		dest, from, err := assignment("file", file)
		if err != nil {
			return nil, err
		}
		name, _, err := splitMode(source(from, platform))
		if err != nil {
			return nil, err
		}
		if err := b.add(path.Clean("/"+dest), name); err != nil {
			return nil, err
		}
	}
	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true)
	err := encoder.EncodeVersion(b.document(s.name+" "+platform.String(), s.name), cdx.SpecVersion1_6)
	return out.Bytes(), err
}

func (b *bill) document(title, name string) *cdx.BOM {
	bom := cdx.NewBOM()
	bom.SerialNumber = ""
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{BOMRef: title, Type: cdx.ComponentTypeContainer, Name: name}}
	components := b.programs
	for _, ref := range slices.Sorted(maps.Keys(b.modules)) {
		components = append(components, b.modules[ref])
	}
	uses := []cdx.Dependency{{Ref: title, Dependencies: new(refs(b.programs))}}
	uses = append(uses, b.uses...)
	bom.Components, bom.Dependencies = &components, &uses
	return bom
}

// add reads a program. What is none of Go's is named with its checksum.
func (b *bill) add(dest, from string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	program := cdx.Component{
		BOMRef: dest,
		Type:   cdx.ComponentTypeFile,
		Name:   dest,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err == nil {
		program.Type, program.Version = cdx.ComponentTypeApplication, info.Main.Version
		program.PackageURL = purl(info.Main.Path, info.Main.Version) + "#" + strings.TrimPrefix(info.Path, info.Main.Path+"/")
		program.Properties = settings(info)
		b.uses = append(b.uses, cdx.Dependency{Ref: dest, Dependencies: new(b.link(info))})
	}
	b.programs = append(b.programs, program)
	return nil
}

// link notes the modules of a program, and the standard library.
func (b *bill) link(info *debug.BuildInfo) (linked []string) {
	modules := []*debug.Module{{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}}
	for _, module := range append(modules, info.Deps...) {
		module = cmp.Or(module.Replace, module)
		ref := purl(module.Path, module.Version)
		component := cdx.Component{BOMRef: ref, Type: cdx.ComponentTypeLibrary, Name: module.Path, Version: module.Version, PackageURL: ref}
		if module.Sum != "" {
			component.Properties = &[]cdx.Property{{Name: "go:sum", Value: module.Sum}}
		}
		b.modules[ref] = component
		linked = append(linked, ref)
	}
	return linked
}

// settings are those of the build that change what is in the program.
func settings(info *debug.BuildInfo) *[]cdx.Property {
	var properties []cdx.Property
	for _, s := range info.Settings {
		if s.Value != "" && !strings.HasPrefix(s.Key, "-") {
			properties = append(properties, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
		}
	}
	return &properties
}

// purl names a module for databases of vulnerabilities
// (https://github.com/package-url/purl-spec, type golang).
func purl(module, version string) string {
	parts := strings.Split(module, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	if version == "" {
		return "pkg:golang/" + strings.Join(parts, "/")
	}
	return fmt.Sprintf("pkg:golang/%s@%s", strings.Join(parts, "/"), url.PathEscape(version))
}

func refs(components []cdx.Component) (names []string) {
	for _, c := range components {
		names = append(names, c.BOMRef)
	}
	return names
}
