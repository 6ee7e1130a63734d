// Package nodemounts has the bridge's own operations on mounts, with pkg/mounter.
package nodemounts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/volumelog"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// Mounts operates below a kubelet's directory.
type Mounts struct {
	Mounter    mounter.Mounter
	KubeletDir string

	mu     sync.Mutex
	asking map[string]*question // by name; guarded by mu
}

// mounter returns the Mounter with the subject of ctx in its log.
func (m *Mounts) mounter(ctx context.Context) *mounter.Mounter {
	with := m.Mounter
	if with.Log != nil {
		with.Log = volumelog.Logger(ctx, with.Log)
	}
	return &with
}

// open opens a mount point below the kubelet's directory, without following symbolic links
// from there on.
func (m *Mounts) open(path string) (*mounter.Target, error) {
	return mounter.OpenTarget(kubeletdir.LinksTo(m.KubeletDir, path), path)
}

// Bind makes source visible at target, in one step.
func (m *Mounts) Bind(ctx context.Context, source, target string, readOnly bool) error {
	t, err := m.open(target)
	if err != nil {
		return err
	}
	defer t.Close()
	// An existing mount was left by a call that was killed.
	if err := m.mounter(ctx).Unmount(ctx, t); err != nil {
		return err
	}
	if err := t.Create(); err != nil {
		return err
	}
	var options []string
	if readOnly {
		options = []string{"ro"}
	}
	if err := m.mounter(ctx).Bind(ctx, source, mounter.Roots{Below: []string{mounter.Anywhere}}, t, options, nil); err != nil {
		t.Discard()
		return err
	}
	return nil
}

// ReadOnly makes the mount at path read-only.
func (m *Mounts) ReadOnly(ctx context.Context, path string) error {
	t, err := m.open(path)
	if err != nil {
		return err
	}
	defer t.Close()
	return m.mounter(ctx).MakeReadOnly(ctx, t)
}

// markerSize is one page: a marker only has to be a mount.
const markerSize = 4096

// Marker mounts a tiny read-only tmpfs, unless something is mounted already.
func (m *Mounts) Marker(ctx context.Context, dir string) error {
	return m.mountMemory(ctx, dir, markerSize, "ro")
}

// mountMemory mounts a tmpfs, unless something is mounted already.
func (m *Mounts) mountMemory(ctx context.Context, dir string, size int64, options ...string) error {
	t, err := m.open(dir)
	if err != nil {
		return err
	}
	defer t.Close()
	if mounted, err := t.Mounted(); err != nil || mounted {
		return err
	}
	if err := t.Create(); err != nil {
		return err
	}
	return m.mounter(ctx).Memory(ctx, size, t, options, nil)
}

// IsMarker reports whether the mount at dir was made by [Mounts.Marker].
func IsMarker(dir string) bool {
	t, err := mounter.OpenTarget("", dir)
	if err != nil {
		return false
	}
	defer t.Close()
	info, err := t.Info()
	return err == nil && info != nil && info.FSType == "tmpfs" &&
		slices.Contains(strings.Split(info.VFSOptions, ","), fmt.Sprintf("size=%dk", markerSize/1024))
}

// Unmount removes all mounts at path.
func (m *Mounts) Unmount(ctx context.Context, path string) error {
	t, err := m.open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer t.Close()
	return m.mounter(ctx).Unmount(ctx, t)
}

// Mounted reports whether path is a mount point.
func (m *Mounts) Mounted(path string) (bool, error) {
	t, err := m.open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer t.Close()
	return t.Mounted()
}

// Below returns the mounts directly below path.
func (m *Mounts) Below(path string) ([]string, error) {
	t, err := m.open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer t.Close()
	return t.Below()
}

// SameFilesystem reports whether the same filesystem is mounted at both paths, from the
// mount table: a filesystem may hang.
func (m *Mounts) SameFilesystem(a, b string) (bool, error) {
	one, err := m.info(a)
	if err != nil || one == nil {
		return false, err
	}
	other, err := m.info(b)
	if err != nil || other == nil {
		return false, err
	}
	return one.Major == other.Major && one.Minor == other.Minor, nil
}

// info returns the mount at a path, or nil.
func (m *Mounts) info(path string) (*mounter.Info, error) {
	t, err := m.open(path)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	return t.Info()
}

// SetGroup changes the group of the tree at path.
func (m *Mounts) SetGroup(ctx context.Context, path string, gid int64) error {
	root, err := os.Open(path)
	if err != nil {
		return err
	}
	defer root.Close()
	return m.mounter(ctx).SetGroup(ctx, root, int(gid))
}

// healthWait bounds the wait for a filesystem's answer.
const healthWait = 2 * time.Second

// A question has the answer of a filesystem once done is closed.
type question struct {
	asked time.Time
	done  chan struct{}
	bytes int64
	err   error
}

// Healthy calls statfs at path. A dead filesystem answers at once (ENOTCONN for a FUSE
// driver that has exited). For one that hangs it returns [mounter.ErrSilent], and leaves a
// goroutine until the filesystem answers.
func (m *Mounts) Healthy(path string) error {
	_, err := m.ask("statfs", path, mounter.Statfs)
	return err
}

// ask asks the filesystem at path, or joins the same question, which may be older. It does
// not wait long for an answer.
func (m *Mounts) ask(what, path string, f func(path string) (int64, error)) (bytes int64, err error) {
	q := m.pending(what+" "+path, func() (int64, error) { return f(path) })
	select {
	case <-q.done:
		return q.bytes, q.err
	case <-time.After(healthWait - time.Since(q.asked)):
		return 0, fmt.Errorf("%s %s: no answer since %s: %w", what, path, q.asked.UTC().Format(time.RFC3339), mounter.ErrSilent)
	}
}

// pending returns the pending question of a name, or a new one.
func (m *Mounts) pending(name string, f func() (int64, error)) *question {
	m.mu.Lock()
	defer m.mu.Unlock()
	if q, ok := m.asking[name]; ok {
		return q
	}
	q := &question{asked: time.Now(), done: make(chan struct{})}
	if m.asking == nil {
		m.asking = map[string]*question{}
	}
	m.asking[name] = q
	go func() {
		var err error
		if q.bytes, err = f(); err != nil {
			q.err = fmt.Errorf("%s: %w", name, err)
		}
		m.mu.Lock()
		delete(m.asking, name)
		m.mu.Unlock()
		close(q.done)
	}()
	return q
}
