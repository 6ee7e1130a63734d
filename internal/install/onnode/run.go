package onnode

import (
	"fmt"
	"io"
	"strings"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/install"
	"github.com/flex2csi/flex2csi/internal/kubelet"
)

// run is one run of Install or Uninstall.
type run struct {
	host     kubelet.Host
	out      io.Writer
	stateDir string
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintln(r.out, r.host.Shown(fmt.Sprintf(format, args...)))
}

func (r *run) warn(format string, args ...any) { r.say("warning: "+format, args...) }

// shown returns err with the paths of the node.
func (r *run) shown(err error) error {
	if err == nil {
		return nil
	}
	return &shownError{err, r.host.Shown(err.Error())}
}

type shownError struct {
	error
	text string
}

func (e *shownError) Error() string { return e.text }

func (e *shownError) Unwrap() error { return e.error }

func (r *run) tellDirs(d kubelet.Dirs) {
	r.say("plugin directory %s, from %s", d.Plugin.Path, d.Plugin.From)
	r.say("kubelet's directory %s, from %s", d.Root.Path, d.Root.From)
	for _, note := range d.Notes {
		r.warn("%s", note)
	}
}

// tell prints what was done with a driver.
func (r *run) tell(driver driverconfig.DriverName, report install.Report) {
	for _, line := range report.Lines() {
		if warning, ok := strings.CutPrefix(line, install.Warning); ok {
			r.warn("%s: %s", driver, warning)
		} else {
			r.say("%s: %s", driver, line)
		}
	}
}

// mountinfo are the mounts of the node and of this container, which may have
// one more than once.
func (r *run) mountinfo() []string {
	return []string{"/proc/self/mountinfo", r.host.ProcFile(1, "mountinfo")}
}
