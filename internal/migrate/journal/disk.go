package journal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/durable"
)

// Disk keeps records in a directory, one file for each volume, and a back-up of
// objects beside. The directory is made by the first that is written.
type Disk struct{ Dir string }

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

func (d *Disk) path(volume string) (string, error) {
	name, err := fileName(volume)
	return filepath.Join(d.Dir, name+recordSuffix), err
}

// Load returns the record of a volume; nil if there is none.
func (d *Disk) Load(_ context.Context, volume string) (*Record, error) {
	path, err := d.path(volume)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil //nolint:nilnil // there is none
	case err != nil:
		return nil, fmt.Errorf("read the journal of %s: %w", volume, err)
	}
	return decode(data, volume, path)
}

// List returns all records, and an error for each file that is none.
func (d *Disk) List(context.Context) ([]*Record, error) {
	all, broken, err := d.list()
	return all, errors.Join(append(slices.Collect(maps.Values(broken)), err)...)
}

// list returns the errors of files by their names without the suffix.
func (d *Disk) list() (all []*Record, broken map[string]error, err error) {
	entries, err := os.ReadDir(d.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the journal: %w", err)
	}
	broken = map[string]error{}
	for _, entry := range entries {
		name, ok := strings.CutSuffix(entry.Name(), recordSuffix)
		if !ok || entry.IsDir() || strings.HasPrefix(name, ".") {
			continue
		}
		path := filepath.Join(d.Dir, entry.Name())
		data, err := os.ReadFile(path)
		var r *Record
		if err == nil {
			r, err = decode(data, "", path)
		}
		if err == nil {
			err = isOf(name, r, path)
		}
		if err != nil {
			broken[name] = err
			continue
		}
		all = append(all, r)
	}
	sortRecords(all)
	return all, broken, nil
}

// isOf is an error if a record has another volume's file.
func isOf(name string, r *Record, path string) error {
	if want, err := fileName(r.Volume); err != nil || want != name {
		return fmt.Errorf("%s: it is about volume %q, whose file has another name", path, r.Volume)
	}
	return nil
}

func sortRecords(all []*Record) {
	slices.SortFunc(all, func(a, b *Record) int { return strings.Compare(a.Volume, b.Volume) })
}

// Save writes a record: when it returns nil that is on the disk, and whatever
// happens meanwhile there is the old one or the new one.
func (d *Disk) Save(ctx context.Context, r *Record) error {
	n := r.next(time.Now())
	if err := d.put(ctx, n); err != nil {
		return err
	}
	r.saved(n)
	return nil
}

// put writes a record as it is, unless a later one is there.
func (d *Disk) put(ctx context.Context, n *Record) error {
	data, err := encodeForPeople(n)
	if err != nil {
		return fmt.Errorf("write the journal of %s: %w", n.Volume, err)
	}
	there, err := d.Load(ctx, n.Volume)
	switch {
	case err != nil && !errors.Is(err, ErrUnreadable): // that is written anew
		return err
	case there != nil && there.after(n):
		return fmt.Errorf("write the journal of %s: %w: %s has it as it was %s later", n.Volume, ErrConflict, d.Dir, writes(there.Sequence-n.Sequence))
	}
	if err := durable.MakeDir(d.Dir); err != nil {
		return fmt.Errorf("make the journal's directory: %w", err)
	}
	path, err := d.path(n.Volume)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(path, data); err != nil {
		return fmt.Errorf("write the journal of %s: %w", n.Volume, err)
	}
	return nil
}

func writes(n int64) string {
	if n <= 0 {
		return "a migration"
	}
	return fmt.Sprintf("%d writes", n)
}

// Verify compares a record that was saved with the file.
func (d *Disk) Verify(_ context.Context, r *Record) error {
	path, err := d.path(r.Volume)
	if err != nil {
		return err
	}
	want, err := encodeForPeople(r)
	if err != nil {
		return err
	}
	got, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the journal of %s back: %w", r.Volume, err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("read the journal of %s back: %s does not have what was written", r.Volume, path)
	}
	return nil
}
