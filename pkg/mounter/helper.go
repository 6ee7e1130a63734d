package mounter

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	// Credentials are given to the mount helper as files in memory: each option's
	// value is replaced by a path below /proc that shows the content. They never
	// reach a disk or an argument list; see secretFiles.
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
	files, err := exposeAll(r.FSType, r.Credentials)
	defer files.close()
	if err != nil {
		return s.err("mount", t.path, err)
	}
	if err := m.runMount(ctx, r, files, t); err != nil {
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

const noHelper = "is not installed on this node (looked in " + helperPath + ")"

// mountWithoutHelper asks the kernel directly.
func (m *Mounter) mountWithoutHelper(ctx context.Context, s source, credentials bool, t *Target) error {
	helper := helperName(s.fsType)
	if credentials {
		return s.err("mount", t.path, fmt.Errorf("the program mount.%s, which would take the credentials, %s", helper, noHelper))
	}
	err := m.mountSource(ctx, s, t, nil)
	var failed *Error
	if errors.As(err, &failed) && failed.Op == "mount" && !errors.Is(err, ErrOccupied) && !errors.Is(err, ErrUnsafePath) {
		failed.Err = fmt.Errorf("%w; a program mount.%s, which this filesystem may need, %s", failed.Err, helper, noHelper)
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

func (m *Mounter) runMount(ctx context.Context, r Remote, files *secretFiles, t *Target) error {
	args := []string{"-t", r.FSType}
	if options := append(slices.Clip(r.Options), files.options...); len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	c := &child{commander: commander{ctx: ctx, m: m}, name: "mount", args: append(args, "--", r.Source, t.path)}
	if files.inherited {
		c.files = files.files
	}
	out, err := c.CombinedOutput()
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

// secretFiles are sealed files in memory. A helper that ends with the mount inherits
// them: mount.cifs drops its capabilities before it opens the file, and may then not
// look into the descriptors of another process. A FUSE program stays, and must not keep
// the content: it opens the file of this process, which it does with all its
// capabilities, and which ends with the mount.
type secretFiles struct {
	options   []string
	files     []*os.File
	inherited bool
}

func exposeAll(fsType string, credentials map[string][]byte) (*secretFiles, error) {
	s := &secretFiles{inherited: fsType != "fuse" && !strings.HasPrefix(fsType, "fuse.")}
	for _, option := range slices.Sorted(maps.Keys(credentials)) {
		path, err := s.expose(credentials[option])
		if err != nil {
			return s, fmt.Errorf("pass the credentials for the option %s: %w", option, err)
		}
		s.options = append(s.options, option+"="+path)
	}
	return s, nil
}

func (s *secretFiles) expose(content []byte) (path string, err error) {
	fd, err := unix.MemfdCreate("credentials", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
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
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE); err != nil {
		return "", err
	}
	if s.inherited {
		return fmt.Sprintf("/proc/self/fd/%d", firstFile+len(s.files)-1), nil
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), nil
}

func (s *secretFiles) close() {
	for _, f := range s.files {
		f.Close()
	}
}
