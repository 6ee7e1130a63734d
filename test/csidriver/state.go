package csidriver

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// store is the directory with the driver's records. A caller that changes a record holds
// the lock of its volume.
type store struct{ dir string }

// volumeRecord is a volume. The image's length is its capacity.
type volumeRecord struct {
	ID         string            `json:"id"`
	Name       string            `json:"name"`
	Parameters map[string]string `json:"parameters,omitempty"` // its volume_context, too
	Ephemeral  bool              `json:"ephemeral,omitempty"`
	// GrowFilesystem says that the image has grown and the filesystem not yet.
	GrowFilesystem bool `json:"growFilesystem,omitempty"`
	// Publications are the nodes to which it is attached.
	Publications map[string]publication `json:"publications,omitempty"`
}

// publication is one ControllerPublishVolume.
type publication struct {
	ReadOnly   bool       `json:"readOnly,omitempty"`
	Capability capability `json:"capability"`
	// Token is the publish_context that the node has to show.
	Token string `json:"token"`
}

// nodeRecord is what was asked of a node for a volume, written before it is
// done and removed after it is undone. Whether it is so the mount table says.
type nodeRecord struct {
	StagingPath string                  `json:"stagingPath,omitempty"`
	Staged      capability              `json:"staged,omitzero"`
	Targets     map[string]targetRecord `json:"targets,omitempty"` // by path
}

type targetRecord struct {
	ReadOnly   bool       `json:"readOnly,omitempty"`
	Capability capability `json:"capability"`
}

var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)

// isID reports whether s can be a file's name.
func isID(s string) bool { return idPattern.MatchString(s) }

// volumeID makes an id of a volume's name: the name itself where that can be.
func volumeID(name string) string {
	if isID(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "v-" + hex.EncodeToString(sum[:])
}

const (
	recordSuffix = ".json"
	imageSuffix  = ".img"
)

func (s store) lockFile() string           { return filepath.Join(s.dir, "lock") }
func (s store) volumes() string            { return filepath.Join(s.dir, "volumes") }
func (s store) image(id string) string     { return filepath.Join(s.volumes(), id+imageSuffix) }
func (s store) record(id string) string    { return filepath.Join(s.volumes(), id+recordSuffix) }
func (s store) nodes() string              { return filepath.Join(s.dir, "nodes") }
func (s store) node(node string) string    { return filepath.Join(s.nodes(), node) }
func (s store) at(node, id string) string  { return filepath.Join(s.node(node), id+recordSuffix) }
func (s store) knowsNode(node string) bool { return isID(node) && isDir(s.node(node)) }

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// prepare makes the directories, and takes away images that no volume has: a
// driver was killed while it made or deleted one.
func (s store) prepare(nodes []string) error {
	dirs := []string{s.volumes()}
	for _, node := range nodes {
		dirs = append(dirs, s.node(node))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the driver's directories: %w", err)
		}
	}
	images, err := filepath.Glob(filepath.Join(s.volumes(), "*"+imageSuffix))
	if err != nil {
		return err
	}
	for _, image := range images {
		id := strings.TrimSuffix(filepath.Base(image), imageSuffix)
		unlock, err := lockVolume(s, id)
		if err != nil {
			continue // another driver is making it
		}
		if v, err := s.volume(id); err == nil && v == nil {
			err = os.Remove(image)
			if err != nil {
				unlock()
				return fmt.Errorf("remove an image without a volume: %w", err)
			}
		}
		unlock()
	}
	return nil
}

// volume returns the volume, or nil.
func (s store) volume(id string) (*volumeRecord, error) {
	if !isID(id) {
		return nil, nil
	}
	v, found, err := read[volumeRecord](s.record(id))
	if err != nil || !found {
		return nil, err
	}
	return v, nil
}

// putVolume is durable: a volume that was promised survives a power cut.
func (s store) putVolume(v *volumeRecord) error {
	if err := write(s.record(v.ID), v, (*os.File).Sync); err != nil {
		return err
	}
	return syncDir(s.volumes())
}

// deleteVolume removes the record first: from then on there is no volume, and
// prepare removes an image that stays behind.
func (s store) deleteVolume(id string) error {
	if err := remove(s.record(id)); err != nil {
		return err
	}
	if err := syncDir(s.volumes()); err != nil {
		return err
	}
	leftover, err := filepath.Glob(filepath.Join(s.nodes(), "*", id+recordSuffix))
	if err != nil {
		return err
	}
	if err := os.RemoveAll(s.directory(id)); err != nil {
		return err
	}
	for _, path := range append(leftover, s.image(id), temporary(s.record(id))) {
		if err := remove(path); err != nil {
			return err
		}
	}
	return nil
}

// volumeIDs lists the volumes in order.
func (s store) volumeIDs() ([]string, error) { return recordsIn(s.volumes()) }

func recordsIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), recordSuffix); ok && isID(id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// nodeVolume returns what was asked of the node for the volume; an empty
// record if nothing was. Garbage counts as nothing: only a power cut makes
// it, and then nothing is mounted.
func (s store) nodeVolume(node, id string) (*nodeRecord, error) {
	r, _, err := read[nodeRecord](s.at(node, id))
	if errors.Is(err, errGarbage) {
		return new(nodeRecord), nil
	}
	return r, err
}

// putNodeVolume is atomic, and not durable: after a power cut nothing is
// mounted, whatever the record says.
func (s store) putNodeVolume(node, id string, r *nodeRecord) error {
	path := s.at(node, id)
	if r.StagingPath == "" && len(r.Targets) == 0 {
		return errors.Join(remove(path), remove(temporary(path)))
	}
	return write(path, r, func(*os.File) error { return nil })
}

// write replaces a record at once. The temporary file's name is always the
// same, so one that was left behind goes with the next.
func write(path string, record any, sync func(*os.File) error) error {
	b, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(temporary(path), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, sync(f), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func temporary(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
}

var errGarbage = errors.New("it is not what this driver writes")

// read decodes a record; one that is not there is empty.
func read[T any](path string) (record *T, found bool, err error) {
	record = new(T)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return record, false, nil
	}
	if err != nil {
		return record, false, err
	}
	if err := json.Unmarshal(b, record); err != nil {
		return record, false, fmt.Errorf("%s: %w: %w", path, errGarbage, err)
	}
	return record, true, nil
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
