package yamltext

// This file finds files of manifests, as kubectl takes them with -f.

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// OpenManifest calls read for a file, or for the files .yaml, .yml and .json of a directory and
// those below it. "-" is standard input.
func OpenManifest(path string, stdin io.Reader, read func(name string, r io.Reader) error) error {
	if path == "-" {
		return read("standard input", stdin)
	}
	return filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		isManifest := slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
		if d.IsDir() || name != path && (!isManifest || !d.Type().IsRegular()) {
			return nil
		}
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		return read(name, file)
	})
}

// withoutSeparators is a stream of JSON documents without the lines "---" between them, which are
// YAML. Within a document no line begins like that.
type withoutSeparators struct {
	in     *bufio.Reader
	line   []byte // what is not read yet of it
	inside bool   // the next bytes continue a line
}

func (w *withoutSeparators) Read(p []byte) (int, error) {
	if len(w.line) == 0 {
		line, err := w.in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) && len(line) == 0 {
			return 0, err
		}
		if !w.inside && bytes.HasPrefix(line, []byte("---")) {
			line = bytes.Replace(line, []byte("---"), []byte("   "), 1) // errors keep their places
		}
		w.line, w.inside = line, !bytes.HasSuffix(line, []byte("\n"))
	}
	n := copy(p, w.line)
	w.line = w.line[n:]
	return n, nil
}
