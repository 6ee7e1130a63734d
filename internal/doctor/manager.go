//go:build linux

package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/driverconfig"
)

// checkControllerManager: with attach: true it is kube-controller-manager that
// attaches, with the driver's executable in its own container
// (cmd/kube-controller-manager/app/options/persistentvolumebindercontroller.go,
// --flex-volume-plugin-dir).
func (p *probe) checkControllerManager(ctx context.Context, n *notes, c *driverconfig.Configuration) {
	driver := c.Driver.String()
	found := p.host().Processes("kube-controller-manager")
	if len(found) == 0 {
		n.add(driverAttaches, driver, "%s is installed with attach: true, and kube-controller-manager does not run on this node", driver)
	}
	for _, pid := range found {
		dir := filepath.Join(p.managerDir(pid), c.Driver.DirName())
		executable, socket := filepath.Join(dir, c.Driver.Name), c.ControllerSocketOf(dir)
		root := p.host().ProcFile(pid, "root")
		if _, err := os.Stat(root + executable); errors.Is(err, fs.ErrNotExist) {
			n.add(driverNotInManager, driver, "%s is installed with attach: true, and kube-controller-manager (process %d) has no %s", driver, pid, executable)
			continue
		}
		if socket != "" && !listens(ctx, root+socket) {
			n.add(controllerAbsent, driver, "flex2csi controller does not listen at %s, where %s in kube-controller-manager (process %d) calls it", socket, driver, pid)
		}
	}
}

// managerDir is where a kube-controller-manager looks for drivers.
func (p *probe) managerDir(pid int) string {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	dir := flags.String("flex-volume-plugin-dir", distribution.DefaultPluginDir, "")
	if args, err := p.host().CommandLine(pid); err == nil {
		_ = flags.Parse(args[1:]) // what cannot be parsed leaves the default
	}
	return *dir
}
