package install

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestImage: the same sources at another place give the same bytes, and the
// programs in the image say the version that is on its label.
func TestImage(t *testing.T) {
	here := makeImage(t, "../..", "BUILDVCS=false")
	there := makeImage(t, copySources(t, "../.."), "BUILDVCS=false")
	for _, name := range []string{"image.tar", "flex2csi-linux-" + runtime.GOARCH + ".cdx.json"} {
		if readFile(t, filepath.Join(here, name)) != readFile(t, filepath.Join(there, name)) {
			t.Errorf("%s is another one when it is built at another place", name)
		}
	}
	checkPrograms(t, filepath.Join(makeImage(t, "../.."), "image.tar"))
}

// makeImage runs make image, for this machine, and returns the directory with
// what it has made.
func makeImage(t *testing.T, root string, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	args := append([]string{"--no-print-directory", "-C", root, "image", "PLATFORMS=linux/" + runtime.GOARCH, "ARCHIVE=" + dir + "/image.tar"}, more...)
	cmd := exec.CommandContext(t.Context(), "make", args...)
	// What the make that runs this test was told is not for this one.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=") })
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make image: %v\n%s", err, out)
	}
	return dir
}

// copySources copies all but what was built, and what git has.
func copySources(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case name == "bin" || name == ".git":
			return skip(d)
		case d.IsDir():
			return os.MkdirAll(filepath.Join(dir, name), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, name), content, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func skip(d fs.DirEntry) error {
	if d.IsDir() {
		return fs.SkipDir
	}
	return nil
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// checkPrograms takes the programs out of an archive and asks them.
func checkPrograms(t *testing.T, archive string) {
	t.Helper()
	dir := t.TempDir()
	untar(t, openFile(t, archive), dir)
	type descriptor struct{ MediaType, Digest string }
	var index struct{ Manifests []descriptor }
	decode(t, filepath.Join(dir, "index.json"), &index)
	blob := func(digest string) string {
		return filepath.Join(dir, "blobs", strings.Replace(digest, ":", "/", 1))
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	decode(t, blob(index.Manifests[0].Digest), &manifest)
	var config struct {
		Config struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
		}
	}
	decode(t, blob(manifest.Config.Digest), &config)
	layer, err := gzip.NewReader(openFile(t, blob(manifest.Layers[0].Digest)))
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root")
	untar(t, layer, root)
	if c := config.Config; c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/flex2csi"}) {
		t.Errorf("it runs %q as %s", c.Entrypoint, c.User)
	}
	for _, program := range []string{"flex2csi", "flexdriver"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(root, program), "--version").Output()
		if err != nil {
			t.Fatalf("%s --version: %v", program, err)
		}
		version, revision := "", "" // NAME VERSION [REVISION] (GO, PLATFORM)
		if words := strings.Fields(string(out)); len(words) == 5 {
			version, revision = words[1], words[2]
		}
		labels := config.Config.Labels
		if version == "" || version != labels["org.opencontainers.image.version"] || revision != labels["org.opencontainers.image.revision"] {
			t.Errorf("%s says %s %s, the labels are %v", program, version, revision, labels)
		}
	}
}

func openFile(t *testing.T, name string) *os.File {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func decode(t *testing.T, file string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, file)), into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func untar(t *testing.T, from io.Reader, dir string) {
	t.Helper()
	for r := tar.NewReader(from); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(r)
		path := filepath.Join(dir, header.Name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, header.FileInfo().Mode()))
		if err != nil {
			t.Fatal(err)
		}
	}
}
