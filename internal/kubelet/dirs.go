package kubelet

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/flex2csi/flex2csi/internal/distribution"
)

// A Query has what is known of a kubelet before the search.
type Query struct {
	Host Host
	// PID is for machines with several kubelets; zero: look for one.
	PID int
	// PluginDir and RootDir are set by the operator; empty: not set.
	PluginDir, RootDir string
	// Configz asks the API server for the kubelet's volumePluginDir; nil: no access.
	Configz func(context.Context) (string, error)
	// Distribution is set by the operator; nil: not set.
	Distribution *distribution.Distribution
}

// A Dir is a directory with the kubelet's path.
type Dir struct {
	Path string
	// From is the source of the path, for messages.
	From string
	// Guessed: neither the kubelet nor the operator has named it.
	Guessed bool
}

// Dirs are the kubelet's plugin directory and root directory.
type Dirs struct {
	Plugin, Root Dir
	// Kubelet is the running one. If it is nil, Unseen says why.
	Kubelet *Kubelet
	Unseen  error
	// Notes are what was tried without success, or is odd.
	Notes []string
}

// Dirs finds the directories. The sources, the best first: the operator, the kubelet's
// configz, its process and files, what a program with a kubelet inside watches, the table
// of distributions, the default of Kubernetes.
func (q Query) Dirs(ctx context.Context) Dirs {
	var d Dirs
	d.Kubelet, d.Unseen = Find(q.Host, q.PID)
	d.Root, d.Plugin = q.rootDir(d.Kubelet), q.pluginDir(d.Kubelet)
	if q.PluginDir == "" && q.Configz != nil {
		if dir, err := q.Configz(ctx); err != nil {
			d.Notes = append(d.Notes, fmt.Sprintf("the kubelet's configz was not to be had: %v", err))
		} else if dir != "" {
			d.Plugin = Dir{Path: filepath.Clean(dir), From: "volumePluginDir in the kubelet's configz"}
		}
	}
	if k := d.Kubelet; k != nil && k.PluginDir != d.Plugin.Path {
		d.Notes = append(d.Notes, fmt.Sprintf("the kubelet (process %d) says otherwise: %s (%s)", k.PID, k.PluginDir, k.PluginDirFrom))
	}
	return d
}

func (q Query) pluginDir(k *Kubelet) Dir {
	switch {
	case q.PluginDir != "":
		return Dir{Path: filepath.Clean(q.PluginDir), From: "--volume-plugin-dir"}
	case k != nil:
		return Dir{Path: k.PluginDir, From: k.says(k.PluginDirFrom)}
	}
	if dir, ok := q.embedded(); ok {
		return dir
	}
	if q.Distribution != nil {
		return Dir{Path: q.Distribution.PluginDir, From: q.preset(), Guessed: true}
	}
	return Dir{Path: distribution.DefaultPluginDir, From: byDefault, Guessed: true}
}

func (q Query) rootDir(k *Kubelet) Dir {
	switch {
	case q.RootDir != "":
		return Dir{Path: filepath.Clean(q.RootDir), From: "--kubelet-dir"}
	case k != nil:
		return Dir{Path: k.RootDir, From: k.says(k.RootDirFrom)}
	case q.Distribution != nil:
		return Dir{Path: q.Distribution.KubeletDir, From: q.preset(), Guessed: true}
	}
	return Dir{Path: distribution.DefaultKubeletDir, From: byDefault, Guessed: true}
}

func (k *Kubelet) says(from string) string {
	return fmt.Sprintf("the kubelet (process %d): %s", k.PID, from)
}

func (q Query) preset() string { return "--distribution " + q.Distribution.Name }
