package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// A tree is what a layer holds, by path: entries with a source are read from
// there, all belong to root.
type tree map[string]entry

type entry struct {
	source string // of a file
	target string // of a symbolic link
	mode   fs.FileMode
	dir    bool
}

// layer is one layer with all the files.
func (s *spec) layer(platform v1.Platform) (v1.Layer, error) {
	t := tree{}
	for _, file := range s.files {
		dest, from, err := assignment("file", file)
		if err != nil {
			return nil, err
		}
		if err := t.addFile(dest, source(from, platform)); err != nil {
			return nil, err
		}
	}
	for _, link := range s.links {
		dest, target, err := assignment("link", link)
		if err != nil {
			return nil, err
		}
		t.add(dest, entry{target: target, mode: 0o777})
	}
	var content bytes.Buffer
	if err := t.write(&content, s.created); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// add puts an entry into the tree with all directories above it.
func (t tree) add(dest string, e entry) {
	dest = path.Clean("/" + dest)[1:]
	for dir := path.Dir(dest); dir != "."; dir = path.Dir(dir) {
		if _, there := t[dir]; !there {
			t[dir] = entry{dir: true, mode: 0o755}
		}
	}
	t[dest] = e
}

// addFile adds a file or all that is in a directory. Modes are those of the
// files but for the umask of who checked them out: 0755 if it is executable,
// otherwise 0644, or what is said after a colon.
func (t tree) addFile(dest, from string) error {
	from, mode, err := splitMode(from)
	if err != nil {
		return err
	}
	return filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		e, err := entryOf(name, d)
		if err != nil {
			return err
		}
		if mode != 0 && !e.dir {
			e.mode = mode
		}
		if at := path.Join("/", dest, filepath.ToSlash(relative)); at != "/" {
			t.add(at, e)
		}
		return nil
	})
}

func entryOf(name string, d fs.DirEntry) (entry, error) {
	switch d.Type() {
	case fs.ModeDir:
		return entry{dir: true, mode: 0o755}, nil
	case fs.ModeSymlink:
		target, err := os.Readlink(name)
		return entry{target: target, mode: 0o777}, err
	case 0:
		info, err := d.Info()
		if err != nil {
			return entry{}, err
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o111 != 0 {
			mode = 0o755
		}
		return entry{source: name, mode: mode}, nil
	default:
		return entry{}, fmt.Errorf("%s is no file, directory or symbolic link", name)
	}
}

func splitMode(from string) (name string, mode fs.FileMode, err error) {
	at := strings.LastIndexByte(from, ':')
	if at < 0 {
		return from, 0, nil
	}
	bits, err := strconv.ParseUint(from[at+1:], 8, 12)
	if err != nil {
		return "", 0, fmt.Errorf("%s: what is after the colon is no mode such as 0755", from)
	}
	return from[:at], fs.FileMode(bits), nil
}

// write writes the tree as a tar in the order of its names.
func (t tree) write(out io.Writer, created time.Time) error {
	w := tar.NewWriter(out)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if err := t[name].write(w, name, created); err != nil {
			return err
		}
	}
	return w.Close()
}

func (e entry) write(w *tar.Writer, name string, created time.Time) error {
	header := &tar.Header{Name: name, Mode: int64(e.mode), ModTime: created, Format: tar.FormatPAX}
	switch {
	case e.dir:
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
		return w.WriteHeader(header)
	case e.target != "":
		header.Typeflag, header.Linkname = tar.TypeSymlink, e.target
		return w.WriteHeader(header)
	}
	header.Typeflag = tar.TypeReg
	return copyFile(w, header, e.source)
}

func copyFile(w *tar.Writer, header *tar.Header, from string) (err error) {
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, file)
	return err
}
