// Package sbom writes what programs are made of as CycloneDX. All of it is read from
// the programs themselves, where the linker has put it. There is no serial number and
// no time, so that the same programs give the same bytes.
package sbom

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
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// MediaType is the media type of a bill of materials.
const MediaType = "application/vnd.cyclonedx+json"

// A File is a program or another file, and its path or name for the user.
type File struct{ Name, Path string }

// A bill is what is known of programs.
type bill struct {
	programs []cdx.Component
	modules  map[string]cdx.Component
	uses     []cdx.Dependency
}

// Image returns the bill of materials of an image for one platform.
func Image(name, platform string, files []File) ([]byte, error) {
	b, err := read(files)
	if err != nil {
		return nil, err
	}
	title := name + " " + platform
	uses := append([]cdx.Dependency{{Ref: title, Dependencies: new(refs(b.programs))}}, b.uses...)
	return encode(cdx.Component{BOMRef: title, Type: cdx.ComponentTypeContainer, Name: name}, append(b.programs, b.libraries()...), uses)
}

// Program returns the bill of materials of one program.
func Program(file File) ([]byte, error) {
	b, err := read([]File{file})
	if err != nil {
		return nil, err
	}
	return encode(b.programs[0], b.libraries(), b.uses)
}

func read(files []File) (*bill, error) {
	b := &bill{modules: map[string]cdx.Component{}}
	for _, file := range files {
		if err := b.add(file.Name, file.Path); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func encode(of cdx.Component, components []cdx.Component, uses []cdx.Dependency) ([]byte, error) {
	bom := cdx.NewBOM()
	bom.SerialNumber = ""
	bom.Metadata = &cdx.Metadata{Component: &of}
	bom.Components, bom.Dependencies = &components, &uses
	var out bytes.Buffer
	err := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
	return out.Bytes(), err
}

func (b *bill) libraries() (components []cdx.Component) {
	for _, ref := range slices.Sorted(maps.Keys(b.modules)) {
		components = append(components, b.modules[ref])
	}
	return components
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
