package main

import (
	"archive/tar"
	"archive/zip"
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// An entry is a file in an archive. Its mode is 0755 or 0644, whatever the umask of the
// checkout was.
type entry struct {
	name, path string
	program    bool
}

func (e entry) mode() int64 {
	if e.program {
		return 0o755
	}
	return 0o644
}

// tree returns the files below a directory, by name, for an archive with them below root.
// Directories have no entries: what unpacks makes them.
func tree(dir, root string, skip func(name string) bool) (all []entry, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if name := filepath.ToSlash(relative); !skip(name) {
			all = append(all, entry{name: root + "/" + name, path: path})
		}
		return nil
	})
	return all, err
}

// archive writes a .tar.gz, with one time for all.
func archive(file string, entries []entry, at time.Time) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	z, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	for _, e := range entries {
		content, err := os.ReadFile(e.path)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: e.name, Mode: e.mode(), Size: int64(len(content)), ModTime: at, Format: tar.FormatUSTAR}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), z.Close())
}

// archiveZip writes a .zip, with one time for all.
func archiveZip(file string, entries []entry, at time.Time) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	z := zip.NewWriter(out)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	for _, e := range entries {
		content, err := os.ReadFile(e.path)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: e.name, Method: zip.Deflate, Modified: at}
		header.SetMode(fs.FileMode(e.mode()))
		w, err := z.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return z.Close()
}
