package install

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"strings"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

// Nothing in a vendor's program says that Install put it there. So a file next to it has
// the sums of the new program and of the one before. It is in place before the new
// program, so that at a kill either of them is known. Another program, or another
// version, that is copied over it is not in the file. FNV is enough to tell programs
// apart: who can write there is root.

func sum(executable []byte) string {
	h := fnv.New128a()
	h.Write(executable)
	return fmt.Sprintf("%x\n", h.Sum(nil))
}

// isRecorded reports whether Install has put the program in d there.
func isRecorded(d driverDir) (bool, error) {
	record, err := os.ReadFile(d.record())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	info, exists, err := lstat(d.executable(current))
	if err != nil || !exists || !info.Mode().IsRegular() {
		return false, err
	}
	executable, err := os.ReadFile(d.executable(current))
	return err == nil && strings.Contains(string(record), sum(executable)), err
}

// stageRecord writes the record for the update to want.
func (in *installer) stageRecord(want []byte) error {
	record := sum(want)
	before, err := isRecorded(in.dir)
	if err == nil && before {
		var executable []byte
		executable, err = os.ReadFile(in.dir.executable(current))
		record += sum(executable)
	}
	if err != nil {
		return err
	}
	return in.write(in.stage.record(), []byte(record), driverconfig.FileMode)
}

// forgetRecord deletes the record, unless it is that of the program that stays.
func (in *installer) forgetRecord() error {
	recorded, err := isRecorded(in.dir)
	if err != nil || recorded {
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
	_, exists, err := lstat(in.dir.config(current))
	if exists {
		err = fmt.Errorf("replace flexdriver, which has the configuration %s: another program cannot unmount its volumes; uninstall it first", in.dir.config(current))
	}
	return err
}
