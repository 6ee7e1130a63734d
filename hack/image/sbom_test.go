package main

import (
	"bytes"
	"os"
	"slices"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"github.com/flex2csi/flex2csi/hack/image/sbom"
)

// The program is this test, the linker of which is the one of every program.
func TestSBOM(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := dir + "/text"
	write(t, text, "no program", 0o600)
	file, _ := build(t, "", "--platform", "linux/amd64", "--file", "/program="+self+":0755", "--file", "/text="+text, "--sbom", dir+"/{arch}.json")
	var bom cdx.BOM
	content := read(t, dir+"/amd64.json")
	if err := cdx.NewBOMDecoder(bytes.NewReader([]byte(content)), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	names := map[string]cdx.Component{}
	for _, c := range *bom.Components {
		names[c.Name] = c
	}
	if c := names["github.com/google/go-containerregistry"]; c.PackageURL != "pkg:golang/github.com/google/go-containerregistry@"+c.Version || c.Version == "" {
		t.Errorf("what the program links is %+v", c)
	}
	if c := names["std"]; c.Version == "" {
		t.Errorf("the standard library is %+v", c)
	}
	if c := names["/text"]; c.Type != cdx.ComponentTypeFile || len(*c.Hashes) != 1 {
		t.Errorf("a file that is no program is %+v", c)
	}
	uses := *bom.Dependencies
	program := slices.IndexFunc(uses, func(d cdx.Dependency) bool { return d.Ref == "/program" })
	if program < 0 || len(*uses[program].Dependencies) != len(*bom.Components)-2 {
		t.Errorf("dependencies are %+v, want all libraries of /program", uses)
	}
	top := manifests(t, unpack(t, file))
	if len(top) != 2 || top[1].ArtifactType != sbom.MediaType {
		t.Errorf("in the archive: %+v, want the image and its bill of materials", top)
	}
}
