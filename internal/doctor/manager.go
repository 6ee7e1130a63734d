package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

// checkControllerManager: with attach: true it is kube-controller-manager that
// attaches, with the driver's executable in its own container
// (cmd/kube-controller-manager/app/options/persistentvolumebindercontroller.go,
// --flex-volume-plugin-dir).
func (p *patient) checkControllerManager(n *notes, driver string) {
	found := processes("kube-controller-manager")
	if len(found) == 0 {
		n.add(driverAttaches, driver, "%s is installed with attach: true, and kube-controller-manager does not run on this node", driver)
	}
	for _, pid := range found {
		dir := managerDir(pid)
		executable := filepath.Join(dir, strings.ReplaceAll(driver, "/", "~"), filepath.Base(driver))
		if _, err := os.Stat(procFile(pid, "root") + executable); errors.Is(err, fs.ErrNotExist) {
			n.add(driverNotInManager, driver, "%s is installed with attach: true, and kube-controller-manager (process %d) has no %s", driver, pid, executable)
		}
	}
}

// managerDir is where a kube-controller-manager looks for drivers.
func managerDir(pid int) string {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	dir := flags.String("flex-volume-plugin-dir", defaultPluginDir, "")
	if args, err := commandLine(pid); err == nil {
		_ = flags.Parse(args[1:]) // what cannot be parsed leaves the default
	}
	return *dir
}
