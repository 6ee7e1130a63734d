package mounter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Remote is a filesystem that is no disk: NFS, CIFS, CephFS, FUSE, 9p, ….
type Remote struct {
	// Source is what the filesystem calls its source: server:/export,
	// //server/share, or whatever a FUSE program takes.
	Source  string
	FSType  string
	Options []string
	// Credentials are given to the mount helper as files that only this
	// process has: each option's value is replaced by a path below
	// /proc/<pid>/fd that shows the content. They never reach a disk or an
	// argument list, and are gone when this process is.
	Credentials map[string][]byte
	ReadOnly    bool
}

// MountRemote mounts a remote filesystem at t. If there is a program
// mount.<type> it is called through mount(8), as nfs, cifs, ceph and fuse
// need it; without one the kernel is asked directly.
func (m *Mounter) MountRemote(ctx context.Context, r Remote, t *Target) error {
	if r.ReadOnly {
		r.Options = append(slices.Clip(r.Options), "ro")
	}
	s := source{fsType: r.FSType, device: r.Source, options: parseOptions(r.Options), given: r.Options}
	if !IsFSType(r.FSType) || strings.HasPrefix(r.Source, "-") {
		return s.err("mount", t.path, errors.New("the type or the source looks like an option"))
	}
	if !hasHelper(r.FSType) {
		return m.mountWithoutHelper(ctx, s, len(r.Credentials) > 0, t)
	}
	at, err := t.vacant()
	if err != nil {
		return s.err("mount", t.path, err)
	}
	at.Close()
	files, err := exposeAll(r.Credentials)
	defer files.close()
	if err != nil {
		return s.err("mount", t.path, err)
	}
	if err := m.runMount(ctx, r, append(slices.Clip(r.Options), files.options...), t); err != nil {
		m.takeBack(t)
		return s.err("mount", t.path, err)
	}
	if err := verifyRemote(t, r.ReadOnly); err != nil {
		m.takeBack(t)
		return s.err("verify mount", t.path, err)
	}
	m.log().Debug("mounted", "source", r.Source, "fsType", r.FSType, "target", t.path, "readOnly", r.ReadOnly)
	return nil
}

// mountWithoutHelper asks the kernel directly.
func (m *Mounter) mountWithoutHelper(ctx context.Context, s source, credentials bool, t *Target) error {
	helper := helperName(s.fsType)
	if credentials {
		return s.err("mount", t.path, fmt.Errorf("the program mount.%s, which would take the credentials, is not installed on this node", helper))
	}
	err := m.mountSource(ctx, s, t, nil)
	var failed *Error
	if errors.As(err, &failed) && failed.Op == "mount" && !errors.Is(err, ErrOccupied) && !errors.Is(err, ErrUnsafePath) {
		failed.Err = fmt.Errorf("%w; a program mount.%s, which this filesystem may need, is not installed on this node", failed.Err, helper)
	}
	return err
}

// helperName: mount(8) calls mount.fuse for the type fuse.<program>.
func helperName(fsType string) string {
	if strings.HasPrefix(fsType, "fuse.") {
		if _, err := lookIn(helperPath, "mount."+fsType); err != nil {
			return "fuse"
		}
	}
	return fsType
}

func hasHelper(fsType string) bool {
	_, err := lookIn(helperPath, "mount."+helperName(fsType))
	return err == nil
}

func (m *Mounter) runMount(ctx context.Context, r Remote, options []string, t *Target) error {
	args := []string{"-t", r.FSType}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	args = append(args, "--", r.Source, t.path)
	out, err := commander{ctx: ctx, m: m}.Command("mount", args...).CombinedOutput()
	return withOutput(err, out)
}

// verifyRemote checks in the mount table that there is a mount, and that it
// is read-only if it should be. The helper's word alone is not enough: one
// that fails with status 0 lets a pod write to the node's own disk.
func verifyRemote(t *Target, readOnly bool) error {
	mounted, err := t.Mounted()
	if err != nil {
		return err
	}
	if !mounted {
		return errors.New("the mount program reported success, and nothing is mounted")
	}
	if !readOnly {
		return nil
	}
	info, err := t.topMount()
	if err != nil || info == nil {
		return firstError(err, errors.New("it is mounted and not in the mount table"))
	}
	// Read-only is the mount, or the whole filesystem.
	if slices.Contains(strings.Split(info.Options+","+info.VFSOptions, ","), "ro") {
		return nil
	}
	return errors.New("it should be read-only and is writable")
}

// secretFiles are files in memory, readable under /proc/<pid>/fd while this
// process lives.
type secretFiles struct {
	options []string
	files   []*os.File
}

func exposeAll(credentials map[string][]byte) (*secretFiles, error) {
	s := &secretFiles{}
	for option, content := range credentials {
		path, err := s.expose(content)
		if err != nil {
			return s, fmt.Errorf("pass the credentials for the option %s: %w", option, err)
		}
		s.options = append(s.options, option+"="+path)
	}
	return s, nil
}

func (s *secretFiles) expose(content []byte) (string, error) {
	fd, err := unix.MemfdCreate("credentials", unix.MFD_CLOEXEC)
	if err != nil {
		return "", err
	}
	f := os.NewFile(uintptr(fd), "credentials")
	s.files = append(s.files, f)
	// Programs such as s3fs refuse a file that others could read.
	if err := f.Chmod(0o600); err != nil {
		return "", err
	}
	if _, err := f.Write(content); err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), nil
}

func (s *secretFiles) close() {
	for _, f := range s.files {
		f.Close()
	}
}
