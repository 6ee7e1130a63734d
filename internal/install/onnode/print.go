package onnode

import (
	"fmt"
	"strings"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/install"
	"github.com/flex2csi/flex2csi/internal/kubelet"
)

func (n Node) say(format string, args ...any) {
	fmt.Fprintln(n.Out, n.Query.Host.Shown(fmt.Sprintf(format, args...)))
}

func (n Node) warn(format string, args ...any) { n.say("warning: "+format, args...) }

// shown returns err with the paths of the node.
func (n Node) shown(err error) error {
	if err == nil {
		return nil
	}
	return &shownError{err, n.Query.Host.Shown(err.Error())}
}

type shownError struct {
	error
	text string
}

func (e *shownError) Error() string { return e.text }

func (e *shownError) Unwrap() error { return e.error }

func (n Node) printDirs(d kubelet.Dirs) {
	n.say("plugin directory %s, from %s", d.Plugin.Path, d.Plugin.From)
	n.say("kubelet's directory %s, from %s", d.Root.Path, d.Root.From)
	for _, note := range d.Notes {
		n.warn("%s", note)
	}
}

// printReport prints what was done with a driver.
func (n Node) printReport(driver driverconfig.DriverName, report install.Report) {
	for _, line := range report.Lines() {
		if warning, ok := strings.CutPrefix(line, install.Warning); ok {
			n.warn("%s: %s", driver, warning)
		} else {
			n.say("%s: %s", driver, line)
		}
	}
}

// mountinfo are the mounts of the node and of this container, which may have
// one more than once.
func (n Node) mountinfo() []string {
	return []string{"/proc/self/mountinfo", n.Query.Host.ProcFile(1, "mountinfo")}
}
