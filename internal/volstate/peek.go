//go:build unix

package volstate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Peek returns the records in a directory, and an error for each file that
// cannot be read. Unlike [Store.Load] it changes nothing: any process may call it
// while another one works on the records.
func Peek(dir string) (records []*Record, broken []error, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read the state directory: %w", err)
	}
	s := &Store{dir: dir}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || !strings.HasSuffix(e.Name(), recordSuffix) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		r, err := s.read(path)
		if err != nil {
			broken = append(broken, fmt.Errorf("%s: %w", path, err))
			if r, err = s.read(path + "~"); err == nil {
				r.Recovered = true
			}
		}
		if err == nil {
			records = append(records, r)
		}
	}
	return records, broken, nil
}

// IsAside reports whether [Store.Load] has put the file of this name aside.
func IsAside(name string) bool { return strings.HasSuffix(name, brokenSuffix) }
