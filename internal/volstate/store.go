//go:build unix

package volstate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/hostfile"
)

// A Store is a directory of records. Its methods may be called concurrently for different
// volumes.
type Store struct {
	dir  string
	lock *hostfile.Lock // nil: not locked
}

const (
	recordSuffix = ".json"
	// previousSuffix is for the version before, in case a disk fault or an operator
	// breaks the record. Writes are atomic.
	previousSuffix = recordSuffix + "~"
	brokenSuffix   = ".broken"
	// maxRecord bounds what is written: a volume context, a publish context and hundreds of
	// targets, each with an error text. More is read, for what earlier versions wrote.
	maxRecord, maxRead = 4 << 20, 64 << 20
)

// Open creates the directory if necessary, readable only for root, and refuses one that
// others could write to.
func Open(dir string) (*Store, error) {
	if err := hostfile.MakeDir(dir); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	if err := hostfile.CheckTrustedDir(dir, false); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	return &Store{dir: dir}, nil
}

// lockName is neither the name of a record nor of a file that [Store.Load] removes. All
// releases lock the same file.
const lockName = "lock"

// Lock waits until no other process uses the records, and excludes others until
// [Store.Unlock] or the end of this process. Callers of Load and Put need it: Load repairs
// files, and two processes must not work on the same volume.
func (s *Store) Lock(ctx context.Context) error {
	l, err := hostfile.WaitLock(ctx, filepath.Join(s.dir, lockName))
	if err != nil {
		return fmt.Errorf("lock the state directory %s: %w", s.dir, err)
	}
	s.lock = l
	return nil
}

// Locked reports whether another process uses the records now. An error means that this
// process could not use them afterwards.
func (s *Store) Locked() (bool, error) {
	l, err := hostfile.TryLock(filepath.Join(s.dir, lockName))
	if errors.Is(err, hostfile.ErrHeld) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock the state directory %s: %w", s.dir, err)
	}
	return false, l.Close()
}

// Unlock lets the next process use the records. This one must not use them any more.
func (s *Store) Unlock() error {
	if s.lock == nil {
		return nil
	}
	l := s.lock
	s.lock = nil
	return l.Close()
}

// path returns the file of a volume: the name has the driver and a hash of the handle, which
// may have any character.
func (s *Store) path(k csivol.Key) string {
	sum := sha256.Sum256([]byte(k.Driver + "\x00" + k.Handle))
	name := strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || (r >= '0' && r <= '9') || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') {
			return r
		}
		return '_'
	}, k.Driver)
	return filepath.Join(s.dir, fmt.Sprintf("%.100s-%x%s", strings.TrimLeft(name, "."), sum[:12], recordSuffix))
}

// Put writes a record. When it returns nil the record is durable. At any time the disk has
// the old or the new one.
func (s *Store) Put(r *Record) error {
	r.Version, r.Changed = version, time.Now()
	data, err := json.MarshalIndent(r.public(), "", "  ")
	if err != nil {
		return fmt.Errorf("write the record of %s: %w", r.Key(), err)
	}
	if len(data) > maxRecord {
		return fmt.Errorf("write the record of %s: it has %d bytes, more than %d; shorten the options of its PersistentVolume, or delete some of its pods on this node", r.Key(), len(data), maxRecord)
	}
	if err := s.keep(s.path(r.Key())); err != nil {
		return fmt.Errorf("keep the version before of the record of %s: %w", r.Key(), err)
	}
	if err := hostfile.WriteFile(s.path(r.Key()), append(data, '\n')); err != nil {
		return fmt.Errorf("write the record of %s: %w", r.Key(), err)
	}
	return nil
}

// keep makes the current record the version before, atomically: every record except the
// first one has a version before.
func (s *Store) keep(path string) error {
	previous := path + "~"
	temporary := filepath.Join(s.dir, "."+filepath.Base(previous))
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // left by a process that was killed here
	}
	if err := os.Link(path, temporary); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	if err := os.Rename(temporary, previous); err != nil {
		return err
	}
	// It still exists if both were the same file, after a write that failed.
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Delete removes a record; it is no error if there is none. It removes the version before
// first: alone it would look like a record that was lost.
func (s *Store) Delete(k csivol.Key) error {
	for _, path := range []string{s.path(k) + "~", s.path(k)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the record of %s: %w", k, err)
		}
	}
	return hostfile.SyncDir(s.dir)
}

// Load returns all records. It renames files with invalid content, with an error for each,
// and returns the version before, if there is one. A file that cannot be read may be
// valid: then no record is returned, and the caller tries again later.
func (s *Store) Load() (records []*Record, broken []error, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read the state directory: %w", err)
	}
	loaded := map[string]bool{}
	var previous []string
	for _, e := range entries {
		path := filepath.Join(s.dir, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), ".") && !e.IsDir():
			removeStale(path)
		case strings.HasSuffix(e.Name(), previousSuffix):
			previous = append(previous, path)
		case strings.HasSuffix(e.Name(), recordSuffix):
			r, err := s.read(path)
			switch {
			case isUnread(err):
				return nil, broken, err
			case err != nil:
				broken = append(broken, s.putAside(path, err))
			default:
				loaded[path] = true
				records = append(records, r)
			}
		}
	}
	for _, path := range previous {
		if loaded[strings.TrimSuffix(path, "~")] {
			continue
		}
		r, err := s.read(path)
		if isUnread(err) {
			return nil, broken, err
		}
		if err == nil {
			r.Recovered = true
			records = append(records, r)
		}
	}
	return records, broken, nil
}

// isUnread reports whether an error is one of the disk (EIO), the process (EMFILE) or the
// permissions, which says nothing of the content.
func isUnread(err error) bool {
	_, is := errors.AsType[*fs.PathError](err)
	return is
}

// staleAfter is much longer than any write takes between create and rename.
const staleAfter = time.Minute

// notes are prefixes of files that other processes write here at any time: the caches
// of CSIDriver objects and PersistentVolumes, what install has installed, and the
// cordon.
var notes = []string{".csidrivers", ".persistentvolumes", ".installed", ".cordon"}

// removeStale removes a temporary file of a write that was cut short. A file of a
// record is stale, since we have the lock; flexdriver repeats the write of a pending
// unmount; a young file of a note may be about to be renamed.
func removeStale(path string) {
	isNote := slices.ContainsFunc(notes, func(prefix string) bool { return strings.HasPrefix(filepath.Base(path), prefix) })
	if info, err := os.Lstat(path); isNote && err == nil && time.Since(info.ModTime()) < staleAfter {
		return
	}
	_ = os.Remove(path)
}

func (s *Store) read(path string) (*Record, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	var r Record
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&r); err != nil {
		return nil, err
	}
	switch {
	case d.More():
		return nil, errors.New("there is more than one record in it")
	case r.Version < 1 || r.Version > version:
		return nil, fmt.Errorf("its version is %d, and this program knows up to %d", r.Version, version)
	case r.Driver == "" || r.Handle == "":
		return nil, errors.New("it names no volume")
	case s.path(r.Key()) != strings.TrimSuffix(path, "~"):
		return nil, errors.New("it is the record of another volume")
	}
	for dir, t := range r.Targets {
		if t == nil || !filepath.IsAbs(dir) {
			return nil, fmt.Errorf("its target %q is none", dir)
		}
	}
	return &r, nil
}

func readBounded(path string) ([]byte, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxRead {
		return nil, fmt.Errorf("it is no regular file, or larger than %d bytes", maxRead)
	}
	return os.ReadFile(path)
}

// putAside renames an invalid file, so that it is reported once and kept for the operator.
func (s *Store) putAside(path string, why error) error {
	aside := fmt.Sprintf("%s.%d%s", path, time.Now().UnixNano(), brokenSuffix)
	if err := os.Rename(path, aside); err != nil {
		return fmt.Errorf("%s is broken (%w) and cannot be put aside: %w", path, why, err)
	}
	return fmt.Errorf("%s was broken (%w) and is now %s; the version before is used if there is one", path, why, aside)
}
