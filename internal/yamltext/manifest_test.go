package yamltext

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.yaml", "b.txt", "below/c.json", "below/d.yml"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(name), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a.yaml", filepath.Join(dir, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		dir:                             {"a.yaml", "below/c.json", "below/d.yml"},
		filepath.Join(dir, "b.txt"):     {"b.txt"},
		filepath.Join(dir, "link.yaml"): {"a.yaml"},
		"-":                             {"typed"},
	} {
		var got []string
		err := OpenManifest(path, strings.NewReader("typed"), func(_ string, r io.Reader) error {
			text, err := io.ReadAll(r)
			got = append(got, string(text))
			return err
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v; want %q", path, got, err, want)
		}
	}
	if err := OpenManifest(filepath.Join(dir, "none"), nil, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestSeparators(t *testing.T) {
	long := `{"a": "` + strings.Repeat("x", 4089) + `--- no separator"}` // 4096: the buffer
	for in, want := range map[string]string{
		"":                        "",
		"{}":                      "{}",
		"---\n{}\n--- # next\n{}": "   \n{}\n    # next\n{}",
		"{\"a\":\n \"---\"}\n---": "{\"a\":\n \"---\"}\n   ",
		long + "\n---\n":          long + "\n   \n",
	} {
		if err := iotest.TestReader(&withoutSeparators{in: bufio.NewReader(strings.NewReader(in))}, []byte(want)); err != nil {
			t.Errorf("%.40q: %v", in, err)
		}
	}
}
