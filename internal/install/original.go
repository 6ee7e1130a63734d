package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

// A program of other make that Install finds in the driver's place is usually the
// vendor's. Install keeps it in a dot-file of the plugin directory: the prober ignores
// it, and it outlives the driver's directory. A file that is linked there has its owner,
// mode and labels, and is never half written.

// ourModule is in each program of this project: the linker adds lines about the build
// (runtime/debug, BuildInfo), and this begins the one with the path of the main package.
// In a vendor's program that uses our packages that line names the vendor's.
const ourModule = "path\tgithub.com/flex2csi/flex2csi/"

// IsOurs reports whether a file is a program of this project, of any version. It does not
// start it.
func IsOurs(executable string) (bool, error) {
	info, err := os.Stat(executable)
	if err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	f, err := os.Open(executable)
	if err != nil {
		return false, err
	}
	defer f.Close()
	const chunk = 256 << 10
	buf, have := make([]byte, chunk), 0
	for {
		n, err := f.Read(buf[have:])
		have += n
		switch {
		case bytes.Contains(buf[:have], []byte(ourModule)):
			return true, nil
		case errors.Is(err, io.EOF):
			return false, nil
		case err != nil:
			return false, err
		}
		have = copy(buf, buf[max(0, have-len(ourModule)):have])
	}
}

// isForeign reports whether there is a program of other make at path. A link that leads
// nowhere is one.
func isForeign(path string) (bool, error) {
	if program, err := lstat(path); err != nil || program == nil {
		return false, err
	}
	ours, err := IsOurs(path)
	err = ifThere(err)
	return !ours && err == nil, err
}

// isForeign reports whether the program in the driver's place is of other make. With
// orRecorded, one that Install has recorded is not.
func (in *installer) isForeign(orRecorded bool) (bool, error) {
	foreign, err := isForeign(in.dir.executable(current))
	if err != nil || !foreign || !orRecorded {
		return foreign, err
	}
	ours, err := recorded(in.dir)
	return ours == "", err
}

// originalSuffix is that of a kept program; before it are a dot and the driver's directory.
const originalSuffix = ".original"

// originalOf returns where Install keeps the program of other make.
func originalOf(pluginDir string, driver driverconfig.DriverName) string {
	return filepath.Join(pluginDir, "."+driver.DirName()+originalSuffix)
}

func (in *installer) original() string { return originalOf(in.pluginDir, in.Driver) }

// Originals returns the drivers in a plugin directory with a kept program.
func Originals(pluginDir string) (drivers []driverconfig.DriverName) {
	files, _ := filepath.Glob(filepath.Join(pluginDir, ".*~*"+originalSuffix)) // the pattern is well formed
	for _, file := range files {
		vendor, name, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file)[1:], originalSuffix), "~")
		if driver, err := driverconfig.ParseDriverName(vendor + "/" + name); err == nil {
			drivers = append(drivers, driver)
		}
	}
	return drivers
}

// keep keeps the program of other make that install is about to replace. Where flexdriver
// was installed and overwritten, the one from before flexdriver stays.
func (in *installer) keep() error {
	program, original := in.dir.executable(current), in.original()
	foreign, err := in.isForeign(in.Config == nil)
	if err != nil || !foreign {
		return err
	}
	kept, err := lstat(original)
	if err != nil {
		return err
	}
	// What says that Install was here before.
	trace := in.dir.config(current)
	if in.Config == nil {
		trace = in.dir.record()
	}
	before, err := lstat(trace)
	if err != nil {
		return err
	}
	// A vendor's program has the volumes of the one before, which had the same name. A
	// program next to a configuration may be flexdriver in other clothes.
	if in.Config != nil && before == nil {
		if err := in.refuseDevices(program); err != nil {
			return err
		}
	}
	if kept != nil {
		same, err := sameProgram(program, original)
		if err != nil || same {
			return err
		}
		if before != nil {
			in.warn("%s had been overwritten by another program than the one kept as %s: the kept one stays, for uninstall --restore", program, original)
			return nil
		}
	}
	if err := in.keepAs(program, original); err != nil {
		return fmt.Errorf("keep %s, which is not flexdriver: %w", program, err)
	}
	in.did("kept %s, which is not flexdriver, as %s", program, original)
	return nil
}

// refuseDevices refuses to replace a program that has volumes mounted with mountdevice. The
// kubelet unmounts these only while init says attach: true, and nothing tells flexdriver
// what the program has attached.
func (in *installer) refuseDevices(program string) error {
	points, err := mountPoints(in.Mountinfo)
	if err != nil {
		return err
	}
	points = slices.DeleteFunc(points, func(p string) bool { return !isDeviceOf(in.Driver, p) })
	if len(points) > 0 {
		return fmt.Errorf("replace %s, which is not flexdriver: it has attached volumes to this node that are mounted (%d: %s), which only it can detach; drain the node, and install again", program, len(points), list(points))
	}
	return nil
}

func (in *installer) keepAs(program, original string) error {
	linked := original + string(next)
	if err := in.remove(linked); err != nil {
		return err
	}
	if err := in.clone(program, linked); err != nil {
		return err
	}
	info, err := os.Lstat(linked)
	if err == nil && info.Mode().IsRegular() {
		err = in.sync(linked) // its vendor may not have done it
	}
	if err == nil {
		err = in.rename(linked, original)
	}
	if err != nil {
		return both(err, in.remove(linked))
	}
	return in.sync(in.pluginDir)
}

// sameProgram compares two files, or two links.
func sameProgram(a, b string) (bool, error) {
	infoA, err := os.Lstat(a)
	if err != nil {
		return false, err
	}
	infoB, err := os.Lstat(b)
	if err != nil {
		return false, err
	}
	if os.SameFile(infoA, infoB) || infoA.Mode().Type() != infoB.Mode().Type() {
		return os.SameFile(infoA, infoB), nil
	}
	content := sumFile
	if infoA.Mode().Type() == fs.ModeSymlink {
		content = os.Readlink
	}
	ofA, err := content(a)
	if err != nil {
		return false, err
	}
	ofB, err := content(b)
	return ofA == ofB, err
}

// A successor is what an uninstallation leaves in the driver's place.
type successor int

const (
	none   successor = iota
	theirs           // the program of other make that has overwritten flexdriver
	kept             // the program that Install kept
)

func (in *installer) successor() (successor, error) {
	if in.Force {
		return none, nil
	}
	foreign, err := in.isForeign(in.Recorded)
	if err != nil || foreign {
		return theirs, err
	}
	original, err := lstat(in.original())
	if err != nil || original == nil || !in.Restore {
		return none, err
	}
	return kept, nil
}

// Restorable returns why Uninstall with Restore would leave no program of other make.
func Restorable(pluginDir string, driver driverconfig.DriverName) error {
	for _, dir := range []driverDir{liveDir(pluginDir, driver), stageDir(pluginDir, driver)} {
		if foreign, err := isForeign(dir.executable(current)); err != nil || foreign {
			return err // restored already, or overwritten
		}
	}
	original := originalOf(pluginDir, driver)
	kept, err := lstat(original)
	if err == nil && kept == nil {
		err = fmt.Errorf("restore driver %s: no program was kept: there is no %s", driver, original)
	}
	return err
}

// putBack renames the kept program into the driver's place: until then flexdriver is
// there, and after it the whole other program. A directory is made in the stage.
func (in *installer) putBack(exists bool) error {
	var err error
	if exists {
		err = in.rename(in.original(), in.dir.executable(current))
	} else if err = in.mkdir(in.stage.path); err == nil {
		err = in.complete(in.original())
	}
	if err == nil {
		err = in.sync(in.dir.path)
	}
	if err != nil {
		return fmt.Errorf("put %s back: %w", in.original(), err)
	}
	in.report.Changed = true
	in.did("put the program that was there before back as %s: the kubelet runs its init", in.dir.executable(current))
	return in.sync(in.pluginDir)
}

// leave removes what is ours next to the program that stays. A kept program goes if it is
// the same.
func (in *installer) leave(notes []string) error {
	if err := in.removeFiles(append(notes, in.dir.dotFiles()...)); err != nil {
		return err
	}
	if err := in.forgetRecord(); err != nil {
		return err
	}
	if err := in.sync(in.dir.path); err != nil {
		return err
	}
	original, err := lstat(in.original())
	if err != nil || original == nil {
		return err
	}
	same, err := sameProgram(in.dir.executable(current), in.original())
	if err != nil {
		return err
	}
	if !same {
		return in.tellOriginal()
	}
	// A rename of two names of one file does nothing, and so leaves both.
	return in.remove(in.original())
}

// tellOriginal says that a kept program is there.
func (in *installer) tellOriginal() error {
	original, err := lstat(in.original())
	if original != nil {
		in.did("the program that was there before is kept as %s: uninstall --restore puts it back", in.original())
	}
	return err
}
