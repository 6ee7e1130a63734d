package main

import (
	"archive/tar"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// archive makes a tar of an image layout, in the order of the names and with no
// time of today. It appears under its name when it is complete.
func archive(file, dir string) (err error) {
	out, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(out.Name()))
		}
	}()
	if err := errors.Join(tarLayout(out, dir), out.Chmod(0o644), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), file)
}

func tarLayout(out *os.File, dir string) error {
	w := tar.NewWriter(out)
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		relative, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: relative, Mode: 0o644, ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg}
		if d.IsDir() {
			header.Name, header.Mode, header.Typeflag = relative+"/", 0o755, tar.TypeDir
			return w.WriteHeader(header)
		}
		return copyFile(w, header, name)
	})
	return errors.Join(err, w.Close())
}
