package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A spec says what is in an image; the flags of the command are its fields.
type spec struct {
	name            string
	platforms       []string
	files, links    []string
	user            string
	entrypoint, cmd []string
	env             []string
	labels          map[string]string
	attachments     []string
	sbomFile        string
	created         time.Time
}

// write makes the images, the index of them if there are several, and the
// archive. It returns the digest of what the name is for.
func (s *spec) write(file string) (string, error) {
	dir, err := os.MkdirTemp("", "image-*")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	digest, err := s.fill(path)
	if err != nil {
		return "", err
	}
	return digest, archive(file, dir)
}

// fill writes the images and what is attached to them into a layout.
func (s *spec) fill(path layout.Path) (string, error) {
	images, err := s.images()
	if err != nil {
		return "", err
	}
	digest, err := s.append(path, images)
	if err != nil {
		return "", err
	}
	for _, image := range images {
		if err := s.attach(path, image.Add.(v1.Image), *image.Platform); err != nil {
			return "", err
		}
	}
	return digest.String(), nil
}

// append writes one image as it is, several with an index.
func (s *spec) append(path layout.Path, images []mutate.IndexAddendum) (v1.Hash, error) {
	if len(images) == 1 {
		image := images[0].Add.(v1.Image)
		if err := path.AppendImage(image, layout.WithAnnotations(s.reference()), layout.WithPlatform(*images[0].Platform)); err != nil {
			return v1.Hash{}, err
		}
		return image.Digest()
	}
	index := s.index(images)
	if err := path.AppendIndex(index, layout.WithAnnotations(s.reference())); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// reference are the annotations by which an import knows the name: containerd
// (core/images/archive/reference.go) and nerdctl read the first, docker, podman
// and skopeo the second.
func (s *spec) reference() map[string]string {
	return map[string]string{
		"io.containerd.image.name":          s.name,
		"org.opencontainers.image.ref.name": s.name,
	}
}

func (s *spec) images() ([]mutate.IndexAddendum, error) {
	platforms := s.platforms
	if len(platforms) == 0 {
		platforms = []string{"linux/" + runtime.GOARCH}
	}
	var images []mutate.IndexAddendum
	for _, name := range platforms {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return nil, err
		}
		image, err := s.image(*platform)
		if err != nil {
			return nil, fmt.Errorf("image of %s: %w", name, err)
		}
		images = append(images, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return images, nil
}

func (s *spec) index(images []mutate.IndexAddendum) v1.ImageIndex {
	index := mutate.IndexMediaType(mutate.AppendManifests(empty.Index, images...), types.OCIImageIndex)
	if len(s.labels) == 0 {
		return index
	}
	return mutate.Annotations(index, s.labels).(v1.ImageIndex)
}

func (s *spec) image(platform v1.Platform) (v1.Image, error) {
	layer, err := s.layer(platform)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{
		Layer:     layer,
		MediaType: types.OCILayer,
		History:   v1.History{Created: v1.Time{Time: s.created}, CreatedBy: "hack/image"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, s.config(image, platform))
}

func (s *spec) config(image v1.Image, platform v1.Platform) *v1.ConfigFile {
	config, err := image.ConfigFile()
	if err != nil { // of an image that was made in memory a moment ago
		config = &v1.ConfigFile{}
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
	config.Created = v1.Time{Time: s.created}
	config.Config = v1.Config{
		User:       s.user,
		Entrypoint: s.entrypoint,
		Cmd:        s.cmd,
		Env:        s.env,
		Labels:     s.labels,
		WorkingDir: "/",
	}
	return config
}

// source puts the platform into a path.
func source(pattern string, platform v1.Platform) string {
	return filepath.Clean(strings.NewReplacer("{os}", platform.OS, "{arch}", platform.Architecture).Replace(pattern))
}

// assignment splits KEY=VALUE.
func assignment(flag, given string) (key, value string, err error) {
	key, value, _ = strings.Cut(given, "=")
	if key == "" || value == "" {
		return "", "", fmt.Errorf("--%s %s: want two parts with = between them", flag, given)
	}
	return key, value, nil
}
