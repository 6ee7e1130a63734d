package mounter

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Where there is no O_TMPFILE a process that is killed leaves a temporary file.
func TestLinkNamedFileGoesOn(t *testing.T) {
	for name, tt := range map[string]struct {
		left func(dir string) error
		want error
	}{
		"nothing left": {left: func(string) error { return nil }},
		"killed before the size was set": {left: func(dir string) error {
			return os.WriteFile(filepath.Join(dir, ".disk.new"), []byte("rubbish"), 0o600)
		}},
		"killed before the last step": {
			left: func(dir string) error {
				file, temporary := filepath.Join(dir, "disk"), filepath.Join(dir, ".disk.new")
				return firstError(os.WriteFile(file, []byte("content"), 0o600), os.Link(file, temporary))
			},
			want: fs.ErrExist,
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			if err := tt.left(path); err != nil {
				t.Fatal(err)
			}
			dir, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			if err := linkNamedFile(t.Context(), dir, "disk", 1000); !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			content, err := os.ReadFile(filepath.Join(path, "disk"))
			if err != nil {
				t.Fatal(err)
			}
			if tt.want != nil {
				if string(content) != "content" {
					t.Errorf("an image that was there is now %q", content)
				}
			} else if string(content) != string(make([]byte, 1000)) {
				t.Errorf("made %d bytes, %q", len(content), content[:min(len(content), 20)])
			}
			if names, err := filepath.Glob(filepath.Join(path, ".*")); len(names) > 0 || err != nil {
				t.Errorf("left %v, %v", names, err)
			}
		})
	}
}
