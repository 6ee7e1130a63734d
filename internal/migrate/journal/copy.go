package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/flex2csi/flex2csi/internal/durable"
)

// A directory has the copies: a file for each record, and the objects below backup/. It is
// made by the first that is written. The empty one keeps nothing.
type directory string

const recordSuffix = ".json"

// fileName is that of a volume's files. Names of PersistentVolumes can be as
// long as those of files, which have a suffix here.
func fileName(volume string) (string, error) {
	const longest = 200
	if volume == "" || strings.HasPrefix(volume, ".") || strings.ContainsAny(volume, "/\x00") {
		return "", fmt.Errorf("%q is no name of a PersistentVolume", volume)
	}
	if len(volume) > longest {
		return fmt.Sprintf("%s-%s", volume[:longest], hash(volume)), nil
	}
	return volume, nil
}

// hash is a name for a volume where its own is too long.
func hash(volume string) string {
	sum := sha256.Sum256([]byte(volume))
	return fmt.Sprintf("%x", sum[:8])
}

// load returns the copy of a volume's record; nil if there is none.
func (d directory) load(volume string) (*Record, error) {
	name, err := fileName(volume)
	if err != nil || d == "" {
		return nil, err
	}
	r, err := d.read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none
	}
	return r, err
}

// read reads a file.
func (d directory) read(name string) (*Record, error) {
	path := filepath.Join(string(d), name+recordSuffix)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read a copy of the journal: %w", err)
	}
	r, err := decode(data)
	if err == nil {
		if want, wrong := fileName(r.Volume); wrong != nil || want != name {
			err = fmt.Errorf("it is about volume %q, which has another file", r.Volume)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w; there is no ConfigMap of it. If it is no record of flex2csi, take it out of the directory, else see the objects in %s", path, err, filepath.Join(string(d), backupDir, name))
	}
	return r, nil
}

// list returns the copies of all volumes of which there is no ConfigMap, and an error for
// each that cannot be read.
func (d directory) list(there func(volume string) bool) (all []*Record, err error) {
	if d == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(string(d))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the copies of the journal: %w", err)
	}
	var unread []error
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), recordSuffix)
		if !ok || entry.IsDir() || strings.HasPrefix(name, ".") || there(name) {
			continue
		}
		r, err := d.read(name)
		switch {
		case err != nil:
			unread = append(unread, err)
		case !there(r.Volume): // its name can be longer than that of the file
			all = append(all, r)
		}
	}
	return all, errors.Join(unread...)
}

// save writes a copy: when it returns nil that is on the disk, and whatever happens
// meanwhile there is the old one or the new one. It is on many lines, for people.
func (d directory) save(volume string, data []byte) error {
	if d == "" {
		return nil
	}
	name, err := fileName(volume)
	if err != nil {
		return err
	}
	text, err := indented(data)
	if err != nil {
		return err
	}
	if err := durable.MakeDir(string(d)); err != nil {
		return fmt.Errorf("make the journal's directory: %w", err)
	}
	return durable.WriteFile(filepath.Join(string(d), name+recordSuffix), text)
}

// verify compares the copy with what was written.
func (d directory) verify(volume string, data []byte) error {
	if d == "" {
		return nil
	}
	name, err := fileName(volume)
	if err != nil {
		return err
	}
	want, err := indented(data)
	if err != nil {
		return err
	}
	path := filepath.Join(string(d), name+recordSuffix)
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		return errors.Join(fmt.Errorf("read it back: %s does not have what was written", path), err)
	}
	return nil
}

func indented(data []byte) ([]byte, error) {
	var b bytes.Buffer
	err := json.Indent(&b, data, "", "  ")
	return b.Bytes(), err
}
