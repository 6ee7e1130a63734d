package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// sources is a directory with a program for each of two platforms.
func sources(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		write(t, filepath.Join(dir, arch, "program"), "program of "+arch, 0o700)
		write(t, filepath.Join(dir, arch, "sbom.json"), `{"of":"`+arch+`"}`, 0o600)
	}
	write(t, filepath.Join(dir, "tree", "deep", "file"), "text", 0o600)
	if err := os.Symlink("deep/file", filepath.Join(dir, "tree", "link")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, name, content string, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(content), mode)); err != nil {
		t.Fatal(err)
	}
}

// build runs the command and returns the archive and the digest it has printed.
func build(t *testing.T, epoch string, args ...string) (file, digest string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "image.tar")
	var out strings.Builder
	if err := run(append([]string{"-o", file, "--name", "example.invalid/image:v1"}, args...), epoch, &out); err != nil {
		t.Fatal(err)
	}
	_, digest, _ = strings.Cut(strings.TrimSpace(out.String()), "@")
	return file, digest
}

func both(dir string) []string {
	return []string{
		"--platform", "linux/amd64,linux/arm64", "--file", "/program=" + dir + "/{arch}/program", "--file", "opt=" + dir + "/tree",
		"--file", "/etc/secret=" + dir + "/tree/deep/file:0400", "--link", "/bin/sh=program", "--user", "65532:65532", "--entrypoint", "/program", "--entrypoint", "serve",
		"--env", "PATH=/", "--label", "org.opencontainers.image.version=v1", "--attach", "application/vnd.cyclonedx+json=" + dir + "/{arch}/sbom.json",
	}
}

// unpack is the layout in an archive.
func unpack(t *testing.T, file string) v1.ImageIndex {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	dir := t.TempDir()
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, header.Name), string(content), 0o600)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func manifests(t *testing.T, index v1.ImageIndex) []v1.Descriptor {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	return manifest.Manifests
}

func TestIndexOfTwoPlatforms(t *testing.T) {
	file, digest := build(t, "", both(sources(t))...)
	all := unpack(t, file)
	if err := validate.Index(all); err != nil {
		t.Fatal(err)
	}
	top := manifests(t, all)
	if len(top) != 3 || top[0].Digest.String() != digest || top[0].Annotations["io.containerd.image.name"] != "example.invalid/image:v1" {
		t.Fatalf("in the archive: %+v, want the index %s by its name and two documents", top, digest)
	}
	index, err := all.ImageIndex(top[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	for i, descriptor := range manifests(t, index) {
		arch := []string{"amd64", "arm64"}[i]
		if descriptor.Platform == nil || descriptor.Platform.Architecture != arch {
			t.Fatalf("image %d is for %v, want %s", i, descriptor.Platform, arch)
		}
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, image, arch)
		checkDocument(t, all, top[1+i], descriptor.Digest, arch)
	}
}

func checkImage(t *testing.T, image v1.Image, arch string) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{
		User: "65532:65532", Entrypoint: []string{"/program", "serve"}, Env: []string{"PATH=/"}, WorkingDir: "/",
		Labels: map[string]string{"org.opencontainers.image.version": "v1"},
	}
	if diff := cmp.Diff(want, config.Config); diff != "" || config.Architecture != arch {
		t.Errorf("configuration of %s (-want +got):\n%s", config.Architecture, diff)
	}
	got := map[string]string{}
	files := mutate.Extract(image)
	defer files.Close()
	for r := tar.NewReader(files); ; {
		header, err := r.Next()
		if err != nil {
			break
		}
		content, _ := io.ReadAll(r)
		got[header.Name] = fs.FileMode(header.Mode).String() + " " + header.Linkname + string(content)
	}
	wantFiles := map[string]string{
		"bin": "-rwxr-xr-x ", "bin/sh": "-rwxrwxrwx program", "etc": "-rwxr-xr-x ", "etc/secret": "-r-------- text", "opt": "-rwxr-xr-x ",
		"opt/deep": "-rwxr-xr-x ", "opt/deep/file": "-rw-r--r-- text", "opt/link": "-rwxrwxrwx deep/file", "program": "-rwxr-xr-x program of " + arch,
	}
	if diff := cmp.Diff(wantFiles, got); diff != "" {
		t.Errorf("files of %s (-want +got):\n%s", arch, diff)
	}
}

func checkDocument(t *testing.T, all v1.ImageIndex, descriptor v1.Descriptor, subject v1.Hash, arch string) {
	t.Helper()
	document, err := all.Image(descriptor.Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := document.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Subject == nil || manifest.Subject.Digest != subject || manifest.ArtifactType != "application/vnd.cyclonedx+json" {
		t.Errorf("the document %s is about %v, want %s", manifest.ArtifactType, manifest.Subject, subject)
	}
	layer, err := document.LayerByDigest(manifest.Layers[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	content, err := layer.Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	if text, _ := io.ReadAll(content); string(text) != `{"of":"`+arch+`"}` {
		t.Errorf("the document of %s says %s", arch, text)
	}
}

// Who builds an image from the same files must get the same bytes, whatever the
// times and the umask are.
func TestSameBytes(t *testing.T) {
	first, _ := build(t, "", both(sources(t))...)
	other := sources(t)
	if err := errors.Join(os.Chmod(filepath.Join(other, "amd64", "program"), 0o755), os.Chtimes(filepath.Join(other, "tree"), testTime, testTime)); err != nil {
		t.Fatal(err)
	}
	second, _ := build(t, "", both(other)...)
	if a, b := read(t, first), read(t, second); a != b {
		t.Errorf("the archives of the same files differ: %d and %d bytes", len(a), len(b))
	}
	later, _ := build(t, "1700000000", both(other)...)
	if read(t, later) == read(t, first) {
		t.Error("SOURCE_DATE_EPOCH changes nothing")
	}
}

func TestOnePlatform(t *testing.T) {
	dir := sources(t)
	file, digest := build(t, "", "--platform", "linux/arm64", "--file", "/program="+dir+"/{arch}/program")
	top := manifests(t, unpack(t, file))
	if len(top) != 1 || top[0].Digest.String() != digest || !top[0].MediaType.IsImage() {
		t.Errorf("in the archive: %+v, want one image %s", top, digest)
	}
}

func TestRefused(t *testing.T) {
	dir := sources(t)
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no files":       {nil, "needs -o FILE"},
		"no source":      {[]string{"--file", "/program"}, "want two parts with = between them"},
		"missing source": {[]string{"--file", "/program=" + dir + "/nothing"}, "no such file"},
		"bad mode":       {[]string{"--file", "/program=" + dir + "/amd64/program:rwx"}, "no mode such as 0755"},
		"bad platform":   {[]string{"--platform", "a/b/c/d", "--file", "/p=" + dir + "/amd64/program"}, "too many slashes"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "image.tar")
			err := run(append([]string{"-o", file, "--name", "x"}, test.args...), "", io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it left a file: %v", err)
			}
		})
	}
}

var testTime = time.Unix(1234567890, 0)

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
