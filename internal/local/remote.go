package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/flex2csi/flex2csi/pkg/flex"
	"github.com/flex2csi/flex2csi/pkg/mounter"
)

// mountRemote mounts a volume with source.
func (b *Backend) mountRemote(ctx context.Context, v *Volume, p *lockedTarget, o flex.Options) error {
	options, files, err := credentials(v, o.Secrets)
	if err != nil {
		return err
	}
	options = append(options, defaults(v, options, files)...)
	r := mounter.Remote{Source: v.Source, FSType: v.FSType, Options: options, Credentials: files, ReadOnly: v.ReadOnly}
	return explainServer(b.Mounter.MountRemote(ctx, r, p.Target))
}

// defaults are the options of a mount that gives no other value.
//
// mount.nfs repeats a refused mount for 2 minutes (nfs(5), retry), longer than the
// callout has. The kubelet repeats the callout, so the first answer counts: it comes
// after 1 s instead of 65 s with retry=1.
//
// The kernel reads names and passwords of cifs with its own character set, which is
// utf8 on few nodes; options and Secrets are UTF-8.
func defaults(v *Volume, options []string, files map[string][]byte) []string {
	gives := func(name string) bool {
		return slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, name+"=") })
	}
	switch v.FSType {
	case "nfs", "nfs4":
		if !gives("retry") {
			return []string{"retry=0"}
		}
	case "cifs", "smb3":
		text := []byte(v.Source)
		for _, content := range files {
			text = append(text, content...)
		}
		if bytes.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII }) && !gives("iocharset") {
			return []string{"iocharset=utf8"}
		}
	}
	return nil
}

// explainServer adds what to check to an error of a server that refuses or is silent:
// mount programs say the errno only.
func explainServer(err error) error {
	if err == nil {
		return nil
	}
	has := func(texts ...string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) })
	}
	switch {
	case has("mount error(13)"): // EACCES
		return fmt.Errorf("%w; the server refuses this user: check username, password and domain in the volume's Secret, and who may use the share", err)
	case has("mount error(2)"): // ENOENT
		return fmt.Errorf("%w; the server has no such share or directory: check source", err)
	// ECONNREFUSED; NFS before 4 asks rpcbind, which is there.
	case has("Connection refused", "mount error(111)", "requested NFS version or transport protocol is not supported"):
		return fmt.Errorf("%w; the server refuses the connection: check that it serves this type of filesystem in this version, and its port", err)
	case errors.Is(err, context.DeadlineExceeded), flex.CodeOf(err) == flex.CodeDeadlineExceeded, has("timed out", "mount error(110)", "mount error(112)", "No route to host", "mount error(113)"):
		return fmt.Errorf("%w; the server does not answer: check its name, that it runs, and the network and firewalls on the way", err)
	}
	return err
}
