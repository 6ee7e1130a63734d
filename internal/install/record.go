package install

import (
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"os"
	"strings"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

// Nothing in a vendor's program says that Install put it there. So a file next to it has
// the sums of the new program and of the one before. It is in place before the new
// program, so that at a kill either of them is known. Another program, or another
// version, that is copied over it is not in the file. FNV is enough to tell programs
// apart: who can write there is root.

func sum(program []byte) string {
	h := fnv.New128a()
	h.Write(program)
	return line(h)
}

func sumFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := fnv.New128a()
	_, err = io.Copy(h, f)
	return line(h), err
}

func line(h hash.Hash) string { return fmt.Sprintf("%x\n", h.Sum(nil)) }

// recorded returns the sum of the program in d if Install has put it there.
func recorded(d driverDir) (string, error) {
	record, err := os.ReadFile(d.record())
	if err != nil {
		return "", ifThere(err)
	}
	info, err := lstat(d.executable(current))
	if err != nil || info == nil || !info.Mode().IsRegular() {
		return "", err
	}
	program, err := sumFile(d.executable(current))
	if err != nil || !strings.Contains(string(record), program) {
		return "", err
	}
	return program, nil
}

// stageRecord writes the record for the update to want.
func (in *installer) stageRecord(want []byte) error {
	before, err := recorded(in.dir)
	if err != nil {
		return err
	}
	return in.write(in.stage.record(), []byte(sum(want)+before), driverconfig.FileMode)
}

// forgetRecord deletes the record, unless it is that of the program that stays.
func (in *installer) forgetRecord() error {
	stays, err := recorded(in.dir)
	if err != nil || stays != "" {
		return err
	}
	return in.remove(in.dir.record())
}

// refuseConfigured refuses to put a vendor's program in the place of flexdriver, which
// alone can unmount what it has mounted.
func (in *installer) refuseConfigured() error {
	if in.Config != nil {
		return nil
	}
	config, err := lstat(in.dir.config(current))
	if config != nil {
		err = fmt.Errorf("replace flexdriver, which has the configuration %s: another program cannot unmount its volumes; uninstall it first", in.dir.config(current))
	}
	return err
}
