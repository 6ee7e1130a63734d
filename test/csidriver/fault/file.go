package fault

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// file is where rules come from. Next to it, with the suffix .used, is how
// often each was applied, so that a rule which kills the driver once does not
// kill it each time it is started again.
type file struct {
	path string
	sum  string
	info os.FileInfo
}

type usage struct {
	Rules string `json:"rules"` // SHA-256 of the file
	Used  []int  `json:"used"`
}

const usedSuffix = ".used"

// FromFile returns an injector that follows the rules in a file. A file that
// is not there has none; one that cannot be read fails all calls.
func FromFile(path string) *Injector {
	return &Injector{file: &file{path: path}}
}

// WriteFile writes rules for FromFile, all at once. The counts are reset.
func WriteFile(path string, rules ...Rule) error {
	if rules == nil {
		rules = []Rule{}
	}
	b, err := json.MarshalIndent(rules, "", "  ")
	if err != nil {
		return err
	}
	if err := os.Remove(path + usedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return replace(path, append(b, '\n'))
}

func replace(path string, b []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	_, err = temporary.Write(b)
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		os.Remove(temporary.Name())
	}
	return err
}

// reload reads the file if it is another than before. The caller has the
// lock.
func (i *Injector) reload() error {
	if i.file == nil {
		return nil
	}
	info, err := os.Stat(i.file.path)
	if errors.Is(err, fs.ErrNotExist) {
		if i.file.info != nil {
			i.file.info, i.file.sum = nil, ""
			i.set(nil, nil)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if old := i.file.info; old != nil && os.SameFile(old, info) && old.ModTime().Equal(info.ModTime()) && old.Size() == info.Size() {
		return nil
	}
	b, err := os.ReadFile(i.file.path)
	if err != nil {
		return err
	}
	rules, err := parse(b)
	if err != nil {
		return fmt.Errorf("%s: %w", i.file.path, err)
	}
	sum := sha256.Sum256(b)
	i.file.info, i.file.sum = info, hex.EncodeToString(sum[:])
	i.set(rules, i.file.loadUsed(len(rules)))
	return nil
}

func (f *file) loadUsed(rules int) []int {
	var u usage
	b, err := os.ReadFile(f.path + usedSuffix)
	if err != nil || json.Unmarshal(b, &u) != nil || u.Rules != f.sum || len(u.Used) != rules {
		return make([]int, rules)
	}
	return u.Used
}

func (f *file) saveUsed(used []int) error {
	if f == nil {
		return nil
	}
	b, err := json.Marshal(usage{Rules: f.sum, Used: used})
	if err != nil {
		return err
	}
	return replace(f.path+usedSuffix, b)
}
