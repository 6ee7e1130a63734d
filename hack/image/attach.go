package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/flex2csi/flex2csi/hack/image/sbom"
)

// noConfig is the configuration of a manifest that is no image
// (https://github.com/opencontainers/image-spec/blob/v1.1.1/manifest.md#guidance-for-an-empty-descriptor).
const noConfig types.MediaType = "application/vnd.oci.empty.v1+json"

// attach adds the documents about one image. Each is an artifact that names the
// image as its subject, which a registry lists as the image's referrer.
func (s *spec) attach(to layout.Path, image v1.Image, platform v1.Platform) error {
	subject, err := partial.Descriptor(image)
	if err != nil {
		return err
	}
	subject.ArtifactType = ""
	if s.sbomFile != "" {
		content, err := s.sbom(platform)
		if err != nil {
			return err
		}
		if err := os.WriteFile(source(s.sbomFile, platform), content, 0o644); err != nil {
			return err
		}
		if err := writeArtifact(to, *subject, sbom.MediaType, content); err != nil {
			return err
		}
	}
	for _, attachment := range s.attachments {
		kind, from, err := assignment("attach", attachment)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(source(from, platform))
		if err != nil {
			return err
		}
		if err := writeArtifact(to, *subject, kind, content); err != nil {
			return err
		}
	}
	return nil
}

// sbom returns the bill of materials of one platform's image.
func (s *spec) sbom(platform v1.Platform) ([]byte, error) {
	var files []sbom.File
	for _, file := range s.files {
		dest, from, err := assignment("file", file)
		if err != nil {
			return nil, err
		}
		name, _, err := splitMode(source(from, platform))
		if err != nil {
			return nil, err
		}
		files = append(files, sbom.File{Name: path.Clean("/" + dest), Path: name})
	}
	return sbom.Image(s.name, platform.String(), files)
}

func writeArtifact(to layout.Path, subject v1.Descriptor, kind string, content []byte) error {
	config, err := writeBlob(to, noConfig, []byte("{}"))
	if err != nil {
		return err
	}
	layer, err := writeBlob(to, types.MediaType(kind), content)
	if err != nil {
		return err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2,
		MediaType:     types.OCIManifestSchema1,
		ArtifactType:  kind,
		Config:        config,
		Layers:        []v1.Descriptor{layer},
		Subject:       &subject,
	})
	if err != nil {
		return err
	}
	descriptor, err := writeBlob(to, types.OCIManifestSchema1, manifest)
	if err != nil {
		return err
	}
	descriptor.ArtifactType = kind
	return to.AppendDescriptor(descriptor)
}

func writeBlob(to layout.Path, mediaType types.MediaType, content []byte) (v1.Descriptor, error) {
	hash, size, err := v1.SHA256(bytes.NewReader(content))
	if err != nil {
		return v1.Descriptor{}, err
	}
	descriptor := v1.Descriptor{MediaType: mediaType, Digest: hash, Size: size}
	return descriptor, to.WriteBlob(hash, io.NopCloser(bytes.NewReader(content)))
}
