package journal

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/flex2csi/flex2csi/internal/hostfile"
)

// A directory has the copies: a file for each ConfigMap, and the objects below backup/. It is
// made by the first that is written. The empty one keeps nothing.
type directory string

const recordSuffix = ".json"

// fileName returns the name of a volume's files. Names of PersistentVolumes can be as
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

// save writes the copy of a volume's ConfigMap: when it returns nil that is on the disk, and
// whatever happens meanwhile there is the old one or the new one.
func (d directory) save(volume string, m *corev1.ConfigMap) error {
	if d == "" {
		return nil
	}
	name, err := fileName(volume)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := hostfile.MakeDir(string(d)); err != nil {
		return fmt.Errorf("make the journal's directory: %w", err)
	}
	return hostfile.WriteFile(filepath.Join(string(d), name+recordSuffix), append(text, '\n'))
}

// lost returns what the copies say of unfinished migrations without a ConfigMap, and an error for
// each copy without one that cannot be read.
func (d directory) lost(there map[string]bool) (all []*LostError, unread []error) {
	if d == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(string(d))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, []error{fmt.Errorf("read the copies of the journal: %w", err)}
	}
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), recordSuffix)
		if !ok || entry.IsDir() || strings.HasPrefix(name, ".") || there[ConfigMapName(name)] {
			continue
		}
		l, err := d.lostRecord(name)
		switch {
		case err != nil:
			unread = append(unread, err)
		case l != nil && !there[ConfigMapName(l.Record.Volume)]: // its name can be longer than that of the file
			all = append(all, l)
		}
	}
	return all, unread
}

// lostRecord reads a copy without a ConfigMap; nil if there is none, or the migration has ended.
func (d directory) lostRecord(name string) (*LostError, error) {
	if d == "" {
		return nil, nil //nolint:nilnil // documented
	}
	path := filepath.Join(string(d), name+recordSuffix)
	r, err := readCopy(path)
	if err == nil {
		if want, wrong := fileName(r.Volume); wrong != nil || want != name {
			err = fmt.Errorf("it is about volume %q, which has another file", r.Volume)
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !r.Unfinished():
		return nil, nil //nolint:nilnil // documented
	case err != nil:
		return nil, fmt.Errorf("read a copy of the journal: %s: %w; there is no ConfigMap of it. If it is none of flex2csi, take it out of the directory, else see the objects in %s", path, err, filepath.Join(string(d), backupDir, name))
	}
	return &LostError{r, path}, nil
}

func readCopy(path string) (*Record, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var m corev1.ConfigMap
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return decode([]byte(m.Data[recordKey]))
}
