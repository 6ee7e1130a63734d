package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// project is a repository that is built as ours is, in seconds.
func project() map[string]string {
	const program = "package main\n\nimport (\n\t\"fmt\"\n\t\"os\"\n)\n\nfunc main() { fmt.Println(os.Args[1:]) }\n"
	return map[string]string{
		".gitignore":             "bin/\nman/\n",
		"go.mod":                 "module github.com/flex2csi/flex2csi\n\ngo 1.26.0\n",
		"cmd/flex2csi/main.go":   program,
		"cmd/flexdriver/main.go": program,
		"LICENSE":                "Apache\n",
		"CHANGELOG.md":           "# Changelog\n\n## [Unreleased]\n\n- next: [a](docs/next.md)\n\n## [0.1.0] - 2026-01-01\n\n- a [link](docs/a.md), [another](https://b.example)\n\n## [0.0.1]\n\n- old\n",
		"Makefile": "image:\n" +
			"\tfor arch in amd64 arm64; do GOOS=linux GOARCH=$$arch go build -buildvcs=$(BUILDVCS) -o bin/release/linux/$$arch/ ./cmd/... && echo {} >bin/flex2csi-linux-$$arch.cdx.json || exit; done\n" +
			"\techo image $(VERSION) $(PLATFORMS) >$(ARCHIVE)\n" +
			"manual:\n\tmkdir man; echo a >man/flex2csi-config.5; echo b >man/flexdriver.1\n",
		"install/chart/flex2csi/.helmignore":          "*.tgz\n",
		"install/chart/flex2csi/Chart.yaml":           "name: flex2csi\nversion: 0.3.0\nappVersion: v0.1.0\n",
		"install/chart/flex2csi/templates/a.yaml":     "a: b\n",
		"install/overlays/kubeadm/kustomization.yaml": "resources: []\n",
	}
}

// committed commits a project, with changes, in a new directory.
func committed(t *testing.T, changes map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := project()
	maps.Copy(files, changes)
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	git(t, dir, "init", "--quiet", "--initial-branch=main")
	git(t, dir, "add", ".")
	git(t, dir, "-c", "user.name=n", "-c", "user.email=e@example.com", "commit", "--quiet", "--message=first")
	return dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := command(t.Context(), dir, "git", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// released makes v0.1.0 of a repository, and returns the files by their names.
func released(t *testing.T, source string, more ...string) map[string][]byte {
	t.Helper()
	output := filepath.Join(t.TempDir(), "v0.1.0")
	var log bytes.Buffer
	if err := run(t.Context(), append([]string{"--version=v0.1.0", "--source=" + source, "--output=" + output}, more...), &log); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	entries, err := os.ReadDir(output)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(output, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(output)); len(left) != 1 {
		t.Errorf("it leaves %v", left)
	}
	return files
}

// TestRelease: two clones, one of them with the tag, give the same bytes.
func TestRelease(t *testing.T) {
	source := committed(t, nil)
	clone := filepath.Join(t.TempDir(), "another", "place")
	git(t, source, "clone", "--quiet", source, clone)
	git(t, clone, "tag", "v0.1.0")
	git(t, clone, "tag", "v0.1.1")
	one, two := released(t, source), released(t, clone)
	if string(one[sumsFile]) != string(two[sumsFile]) {
		t.Errorf("two clones give\n%s\n%s", one[sumsFile], two[sumsFile])
	}
	checkFiles(t, one)
	checkKrew(t, one)
	checkProvenance(t, one, git(t, source, "rev-parse", "HEAD"))
	if want := "# flex2csi v0.1.0\n\n- a [link](https://github.com/flex2csi/flex2csi/blob/v0.1.0/docs/a.md), [another](https://b.example)\n"; string(one["RELEASE_NOTES.md"]) != want {
		t.Errorf("the notes are %q, want %q", one["RELEASE_NOTES.md"], want)
	}
}

func checkFiles(t *testing.T, files map[string][]byte) {
	t.Helper()
	const completions = "completions/_flex2csi completions/flex2csi.bash completions/flex2csi.fish completions/flex2csi.ps1"
	want := map[string]string{
		"flex2csi_v0.1.0_linux_amd64.tar.gz":  "LICENSE flex2csi* flexdriver* " + completions + " man/flex2csi-config.5 man/flexdriver.1",
		"flex2csi_v0.1.0_linux_arm64.tar.gz":  "LICENSE flex2csi* flexdriver* " + completions + " man/flex2csi-config.5 man/flexdriver.1",
		"flex2csi_v0.1.0_darwin_amd64.tar.gz": "LICENSE flex2csi* " + completions + " man/flex2csi-config.5",
		"flex2csi_v0.1.0_darwin_arm64.tar.gz": "LICENSE flex2csi* " + completions + " man/flex2csi-config.5",
		"flex2csi_v0.1.0_windows_amd64.zip":   "LICENSE flex2csi.exe* " + completions + " man/flex2csi-config.5",
		"flex2csi_v0.1.0_windows_arm64.zip":   "LICENSE flex2csi.exe* " + completions + " man/flex2csi-config.5",
		"flex2csi-0.3.0.tgz":                  "flex2csi/Chart.yaml flex2csi/templates/a.yaml",
		"flex2csi_v0.1.0_manifests.tar.gz":    "flex2csi-v0.1.0/overlays/kubeadm/kustomization.yaml",
	}
	for name, list := range want {
		if got := strings.Join(contents(t, name, files[name]), " "); got != list {
			t.Errorf("%s has %q, want %q", name, got, list)
		}
	}
	if got := string(files["flex2csi-image_v0.1.0_oci.tar"]); got != "image v0.1.0 linux/amd64,linux/arm64\n" {
		t.Errorf("the image is %q", got)
	}
	bills := 0
	for name := range files {
		if strings.HasSuffix(name, ".cdx.json") {
			bills++
		}
		if _, ok := checksums(files)[name]; !ok && name != sumsFile {
			t.Errorf("%s has no checksum", name)
		}
	}
	if bills != 10 { // eight programs, two images
		t.Errorf("there are %d SBOMs", bills)
	}
}

// contents lists an archive; a star is for what can be executed.
func contents(t *testing.T, name string, data []byte) (names []string) {
	t.Helper()
	if strings.HasSuffix(name, ".zip") {
		return zipped(t, name, data)
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(name, err)
	}
	for r := tar.NewReader(z); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(name, err)
		}
		names = append(names, starred(header.Name, header.FileInfo()))
	}
}

func zipped(t *testing.T, name string, data []byte) (names []string) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(name, err)
	}
	for _, f := range z.File {
		names = append(names, starred(f.Name, f.FileInfo()))
	}
	return names
}

func starred(name string, info fs.FileInfo) string {
	if info.Mode()&0o111 != 0 {
		name += "*"
	}
	return name
}

func checksums(files map[string][]byte) map[string]string {
	sums := map[string]string{}
	for line := range strings.Lines(string(files[sumsFile])) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	return sums
}

func checkKrew(t *testing.T, files map[string][]byte) {
	t.Helper()
	var plugin struct {
		Metadata struct{ Name string }
		Spec     struct {
			Version   string
			Platforms []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, SHA256, Bin string
			}
		}
	}
	if err := yaml.Unmarshal(files["flex2csi.yaml"], &plugin); err != nil {
		t.Fatal(err)
	}
	if plugin.Metadata.Name != "flex2csi" || plugin.Spec.Version != "v0.1.0" || len(plugin.Spec.Platforms) != 6 {
		t.Errorf("the plugin is %+v", plugin)
	}
	for _, p := range plugin.Spec.Platforms {
		name := filepath.Base(p.URI)
		if p.SHA256 == "" || p.SHA256 != checksums(files)[name] || !strings.HasPrefix(p.URI, "https://github.com/flex2csi/flex2csi/releases/download/v0.1.0/") {
			t.Errorf("%s has checksum %s, and the file another one", p.URI, p.SHA256)
		}
		if !slices.Contains(contents(t, name, files[name]), p.Bin+"*") || !strings.Contains(name, p.Selector.MatchLabels["os"]+"_"+p.Selector.MatchLabels["arch"]) {
			t.Errorf("%v takes %s of %s", p.Selector, p.Bin, name)
		}
	}
}

func checkProvenance(t *testing.T, files map[string][]byte, revision string) {
	t.Helper()
	var statement struct {
		Subject []struct {
			Name   string
			Digest map[string]string
		}
		Predicate struct {
			BuildDefinition struct {
				ResolvedDependencies []struct{ Digest map[string]string }
			}
		}
	}
	if err := json.Unmarshal(files["provenance.intoto.json"], &statement); err != nil {
		t.Fatal(err)
	}
	sums := checksums(files)
	for _, s := range statement.Subject {
		if s.Digest["sha256"] != sums[s.Name] {
			t.Errorf("the provenance of %s is about %v", s.Name, s.Digest)
		}
	}
	if len(statement.Subject) != len(sums)-1 {
		t.Errorf("the provenance is of %d files, of %d", len(statement.Subject), len(sums)-1)
	}
	if from := statement.Predicate.BuildDefinition.ResolvedDependencies; len(from) != 1 || from[0].Digest["gitCommit"] != revision {
		t.Errorf("it is made from %v, not from %s", from, revision)
	}
}

// TestSign: the documented command verifies the signature, and not of another text.
func TestSign(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if _, err := command(t.Context(), dir, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key); err != nil {
		t.Fatal(err)
	}
	r := &release{dir: dir}
	write(t, filepath.Join(dir, sumsFile), "sums\n")
	if err := r.sign(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "signers"), "flex2csi "+string(public))
	for text, good := range map[string]bool{"sums\n": true, "other\n": false} {
		cmd := exec.CommandContext(t.Context(), "ssh-keygen", "-Y", "verify", "-f", "signers", "-I", "flex2csi", "-n", "file", "-s", sumsFile+".sig")
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); (err == nil) != good {
			t.Errorf("verify %q: %v\n%s", text, err, out)
		}
	}
}

func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		changes map[string]string
		then    func(t *testing.T, dir string)
		version string
		want    string
	}{
		"a version":       {version: "0.1.0", want: "want one such as v0.1.0"},
		"a changed file":  {then: func(t *testing.T, dir string) { write(t, dir+"/LICENSE", "mine\n") }, want: "the tree has changes (M LICENSE …)"},
		"a new file":      {then: func(t *testing.T, dir string) { write(t, dir+"/new", "") }, want: "the tree has changes (?? new …)"},
		"another version": {version: "v0.2.0", want: "the manifests install v0.1.0"},
		"no notes": {
			changes: map[string]string{"CHANGELOG.md": "# Changelog\n\n## [Unreleased]\n\n- next\n"},
			want:    "has no section [0.1.0]; rename [Unreleased]",
		},
		"empty notes": {
			changes: map[string]string{"CHANGELOG.md": "## [0.1.0]\n\n## [0.0.1]\n\n- old\n"},
			want:    "is empty",
		},
		"a tag of another commit": {
			then: func(t *testing.T, dir string) {
				git(t, dir, "tag", "v0.1.0")
				git(t, dir, "-c", "user.name=n", "-c", "user.email=e@example.com", "commit", "--quiet", "--allow-empty", "--message=second")
			},
			want: "the tag v0.1.0 is commit",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := committed(t, test.changes)
			if test.then != nil {
				test.then(t, dir)
			}
			version := test.version
			if version == "" {
				version = "v0.1.0"
			}
			output := filepath.Join(t.TempDir(), "out")
			err := run(context.Background(), []string{"--version=" + version, "--source=" + dir, "--output=" + output}, io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if left, _ := os.ReadDir(filepath.Dir(output)); len(left) > 0 {
				t.Errorf("it leaves %v", left)
			}
		})
	}
}

// TestUnreleased: notes that have no version yet, where that is told.
func TestUnreleased(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "CHANGELOG.md"), "# Changelog\n\n## [Unreleased]\n\n- next\n")
	r := &release{version: "v0.1.0", clone: dir, dir: dir}
	if err := r.writeNotes(true); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "RELEASE_NOTES.md")); string(text) != "# flex2csi v0.1.0\n\n- next\n" {
		t.Errorf("the notes are %q", text)
	}
}
