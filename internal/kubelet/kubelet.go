// Package kubelet finds the kubelet of a machine and its plugin directory, from its process
// and its files, which it reads as the kubelet does.
package kubelet

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/distribution"
)

// A Kubelet is a running kubelet.
type Kubelet struct {
	PID int
	// View is our path of its /: empty, the root of its process, or that of the host.
	View    string
	Started time.Time

	RootDir, PluginDir, NodeName string
	// RootDirFrom and PluginDirFrom are the flags or files that name them.
	RootDirFrom, PluginDirFrom string
	AttachDetach               bool
	// AttachDetachFrom is the same for AttachDetach.
	AttachDetachFrom string
	// Files are those of its configuration.
	Files []string

	host Host
}

// Why a kubelet was not found.
var (
	ErrNone = errors.New("no process called kubelet runs here")
	ErrMany = errors.New("several kubelets run on this machine")
)

// byDefault is the source of what is not configured.
const byDefault = "the default"

// Find finds the process, unless pid is given, and reads its command line and
// configuration.
func Find(h Host, pid int) (*Kubelet, error) {
	if pid == 0 {
		found := h.own(h.Processes("kubelet"))
		switch {
		case len(found) == 0:
			return nil, ErrNone
		case len(found) > 1:
			return nil, fmt.Errorf("%w (processes %s): choose one with --kubelet-pid", ErrMany, strings.Trim(fmt.Sprint(found), "[]"))
		}
		pid = found[0]
	}
	args, err := h.CommandLine(pid)
	if err != nil {
		return nil, err
	}
	k := &Kubelet{PID: pid, View: h.view(pid), Started: h.started(pid), host: h}
	if err := k.read(args[1:]); err != nil {
		return nil, fmt.Errorf("what the kubelet (process %d) is configured to do cannot be told: %w", pid, err)
	}
	return k, nil
}

// read reads flags and files; later ones win (cmd/kubelet/app/server.go,
// NewKubeletCommand: file, drop-ins, flags).
func (k *Kubelet) read(args []string) error {
	k.PluginDir, k.PluginDirFrom = distribution.DefaultPluginDir, byDefault
	k.RootDir, k.RootDirFrom = distribution.DefaultKubeletDir, byDefault
	k.AttachDetach, k.AttachDetachFrom = true, byDefault

	flags := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	config := flags.String("config", "", "")
	dropIns := flags.String("config-dir", "", "")
	rootDir := flags.String("root-dir", "", "")
	pluginDir := flags.String("volume-plugin-dir", "", "")
	attachDetach := flags.Bool("enable-controller-attach-detach", true, "")
	flags.StringVar(&k.NodeName, "hostname-override", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := k.readFiles(*config, *dropIns); err != nil {
		return err
	}
	if *rootDir != "" {
		k.RootDir, k.RootDirFrom = *rootDir, "its flag --root-dir"
	}
	if *pluginDir != "" {
		k.PluginDir, k.PluginDirFrom = *pluginDir, "its flag --volume-plugin-dir"
	}
	if flags.Changed("enable-controller-attach-detach") {
		k.AttachDetach, k.AttachDetachFrom = *attachDetach, "its flag --enable-controller-attach-detach"
	}
	k.RootDir, k.PluginDir = k.absolute(k.RootDir), k.absolute(k.PluginDir)
	return nil
}

// ChangedSince returns the files of its configuration that are newer than its process.
func (k *Kubelet) ChangedSince() (files []string) {
	for _, file := range k.Files {
		if info, err := os.Stat(k.View + file); err == nil && !k.Started.IsZero() && info.ModTime().After(k.Started.Add(2*time.Second)) {
			files = append(files, file)
		}
	}
	return files
}

// Stat returns the FileInfo of a file as the kubelet sees it.
func (k *Kubelet) Stat(path string) (os.FileInfo, error) {
	here, err := k.find(path)
	if err != nil {
		return nil, err
	}
	return os.Stat(here)
}
