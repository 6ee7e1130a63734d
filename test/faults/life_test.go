package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/flex2csi/flex2csi/internal/wire"
	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/test/csidriver"
)

// A callout is one step in the life of a volume.
type callout struct {
	command flex.Command
	pod     string
}

func (c callout) String() string {
	if c.pod == "" {
		return string(c.command)
	}
	return string(c.command) + " " + c.pod
}

// undoes reports whether it takes something down.
func (c callout) undoes() bool {
	switch c.command {
	case flex.CommandUnmount, flex.CommandUnmountDevice, flex.CommandDetach:
		return true
	}
	return false
}

// reversed is the callout that sets up what c takes down.
func (c callout) reversed() callout {
	switch c.command {
	case flex.CommandUnmount:
		return callout{flex.CommandMount, c.pod}
	case flex.CommandUnmountDevice:
		return callout{flex.CommandMountDevice, ""}
	case flex.CommandDetach:
		return callout{flex.CommandAttach, ""}
	}
	panic(c.String() + " undoes nothing")
}

// A life is what the kubelet and kube-controller-manager call for one volume.
type life struct {
	flexDriver string
	callouts   []callout
}

func lives() map[string]life {
	mount := func(pod string) callout { return callout{flex.CommandMount, pod} }
	unmount := func(pod string) callout { return callout{flex.CommandUnmount, pod} }
	expand := callout{flex.CommandExpandFS, "a"}
	return map[string]life{
		"plain":  {plainDriver, []callout{mount("a"), unmount("a")}},
		"direct": {directDriver, []callout{mount("a"), unmount("a")}},
		"device": {deviceDriver, []callout{
			{flex.CommandAttach, ""},
			{flex.CommandMountDevice, ""},
			mount("a"), expand, mount("b"),
			unmount("a"), unmount("b"),
			{flex.CommandUnmountDevice, ""},
			{flex.CommandDetach, ""},
		}},
	}
}

// liver leads a life in a world.
type liver struct {
	*world
	life
	volume *volume
	random *rand.Rand
	// size is what the volume was last expanded to, in bytes.
	size int
	// mounted are the pods that have the volume, and must keep it.
	mounted map[string]bool
}

func (w *world) newLiver(f life) *liver {
	l := &liver{world: w, life: f, random: w.random("life"), size: 8 << 20, mounted: map[string]bool{}}
	for _, v := range w.volumes {
		if v.driver == l.flexDriver {
			l.volume = v
			break
		}
	}
	return l
}

// dir is the directory that a callout is about; empty if it is about none.
func (l *liver) dir(c callout) string {
	switch c.command {
	case flex.CommandMount, flex.CommandUnmount, flex.CommandExpandFS:
		return filepath.Join(l.podDir(c.pod), "volumes", escaped(l.flexDriver), l.volume.name)
	case flex.CommandMountDevice, flex.CommandUnmountDevice:
		return filepath.Join(l.kubeletDir(), "plugins/kubernetes.io/flexvolume", l.flexDriver, "mounts", l.volume.name)
	}
	return ""
}

func (l *liver) argv(c callout) []string {
	options, device := l.options(l.volume, false, c.pod), "csi:"+l.volume.handle
	switch c.command {
	case flex.CommandAttach:
		return []string{string(c.command), options, nodeName}
	case flex.CommandDetach:
		return []string{string(c.command), l.volume.name, nodeName}
	case flex.CommandMountDevice:
		return []string{string(c.command), l.dir(c), device, options}
	case flex.CommandMount:
		return []string{string(c.command), l.dir(c), options}
	case flex.CommandUnmount, flex.CommandUnmountDevice:
		return []string{string(c.command), l.dir(c)}
	case flex.CommandExpandFS:
		return []string{string(c.command), options, device, l.dir(c), strconv.Itoa(l.size), strconv.Itoa(l.size - 1)}
	}
	panic("no arguments known for " + c.String())
}

// prepare makes the directory that the kubelet makes.
func (l *liver) prepare(c callout) error {
	switch c.command {
	case flex.CommandMount, flex.CommandMountDevice:
		return os.MkdirAll(l.dir(c), 0o750)
	}
	return nil
}

// lead calls until that succeeds, as Kubernetes does, and checks what has come
// of it.
func (l *liver) lead(c callout) error {
	if err := l.prepare(c); err != nil {
		return err
	}
	err := eventually(func() error { return l.world.call(context.Background(), l.random, l.flexDriver, l.argv(c)...) })
	if err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	return l.made(c)
}

// once makes a call during which the daemon is killed.
func (l *liver) once(c callout) error {
	status, err := l.exchange(context.Background(), wire.NewRequest(l.flexDriver, l.argv(c), patience))
	if err == nil && status.Status != flex.StatusSuccess {
		err = fmt.Errorf("%s: %s", status.Status, status.Message)
	}
	return err
}

// made checks what a call that has succeeded has promised, and that pods still
// have what they had.
func (l *liver) made(c callout) error {
	switch dir := l.dir(c); c.command {
	case flex.CommandMount:
		l.mounted[c.pod] = true
	case flex.CommandMountDevice:
		if !isMount(dir) {
			return fmt.Errorf("after %s nothing is mounted at %s", c, dir)
		}
	case flex.CommandExpandFS:
		views, err := csidriver.Inspect(l.disks())
		if got := views[l.volume.handle].Capacity; err != nil || got < int64(l.size) {
			return fmt.Errorf("after %s the volume has %d bytes, %w", c, got, err)
		}
	case flex.CommandUnmount, flex.CommandUnmountDevice:
		if isMount(dir) {
			return fmt.Errorf("after %s it is still mounted at %s", c, dir)
		}
		delete(l.mounted, c.pod)
		if err := removeDir(dir); err != nil {
			return err
		}
	}
	return l.intact(string(c.command))
}

// intact checks what pods have.
func (l *liver) intact(when string) error {
	for pod := range l.mounted {
		c := callout{flex.CommandMount, pod}
		if err := (place{dir: l.dir(c), volume: l.volume, pod: pod}).check(); err != nil {
			return fmt.Errorf("%s: pod %s at %s: %w", when, pod, l.dir(c), err)
		}
	}
	return nil
}

// clean is what the kubelet does with the directories of pods that are gone.
func (l *liver) clean() error {
	for _, pod := range []string{"a", "b"} {
		own := filepath.Join(l.disks(), "volumes", l.volume.handle+".d", "of-"+pod)
		if err := removeDir(own); err != nil {
			return err
		}
		if err := l.cleanUp(pod); err != nil {
			return err
		}
	}
	return nil
}

// gone waits until nothing is left.
func (l *liver) gone() error {
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		err := l.clean()
		if left := l.nothingLeft(); left != nil {
			err = left
		}
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
