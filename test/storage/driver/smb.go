package driver

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// smb stands for csi-driver-smb 1.20. It has no Kerberos, no inline volumes, no statistics, and no
// volumes of its own.
func smb() Kind {
	return Kind{
		CSIDriver: "smb.csi.k8s.io", Program: "smbplugin", Stage: true, MountGroup: true, mount: mountSMB, intact: listed,
		Args: func(endpoint, nodeID string) []string {
			return []string{"--endpoint=unix://" + endpoint, "--nodeid=" + nodeID}
		},
	}
}

// listed reports whether a directory can be read: what cannot is mounted again.
func listed(dir string) bool {
	_, err := os.ReadDir(dir)
	return err == nil
}

func mountSMB(ctx context.Context, v volume, dir string) error {
	source := lowered(v.context, "source")
	if source == "" {
		return status.Errorf(codes.InvalidArgument, "source field is missing, current context: %v", v.context)
	}
	if subDir := lowered(v.context, "subdir"); subDir != "" {
		source = strings.TrimRight(source, "/") + "/" + subDir
	}
	if slices.Contains(strings.FieldsFunc(source, func(r rune) bool { return r == '/' || r == '\\' }), "..") {
		return status.Errorf(codes.InvalidArgument, "invalid source path %q: path contains directory traversal sequence", source)
	}
	options := grouped(v.capability.GetMountFlags(), v.capability.GetVolumeMountGroup())
	if domain := secret(v, "domain"); domain != "" {
		options = append(options, "domain="+domain)
	}
	var sensitive []string
	if !slices.Contains(options, "guest") {
		var remove func()
		var err error
		sensitive, remove, err = login(secret(v, "username"), secret(v, "password"))
		if err != nil {
			return err
		}
		defer remove()
	}
	if err := mount(ctx, sensitive, "cifs", source, dir, options...); err != nil {
		return status.Errorf(codes.Internal, "volume(%s) mount %q on %q failed with %v", v.id, source, dir, err)
	}
	return nil
}

// secret returns a value of the volume's Secret. Blanks around it are lost.
func secret(v volume, key string) string { return strings.TrimSpace(lowered(v.secrets, key)) }

// login returns the options with a user and a password. They are in a file only if they have a
// character that the list of options cannot have; remove removes it.
func login(username, password string) (options []string, remove func(), err error) {
	if !strings.ContainsAny(password, "\"`,") {
		return []string{"username=" + username + ",password=" + password}, func() {}, nil
	}
	f, err := os.CreateTemp("", "*.smb.credentials")
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	remove = func() { _ = os.Remove(f.Name()) } // the next CSI driver's too
	if _, err := fmt.Fprintf(f, "username=%s\npassword=%s\n", username, password); err != nil {
		remove()
		return nil, nil, err
	}
	return []string{"credentials=" + f.Name()}, remove, nil
}

// grouped gives a group what the owner of files and directories may do, unless the mount flags name
// a group.
func grouped(flags []string, group string) []string {
	options := slices.Clone(flags)
	if group == "" || slices.ContainsFunc(flags, func(o string) bool { return strings.HasPrefix(o, "gid") }) {
		return options
	}
	options = append(options, "gid="+group)
	for name, mode := range map[string]string{"file_mode": "0774", "dir_mode": "0775"} {
		i := slices.IndexFunc(options, func(o string) bool { return strings.HasPrefix(o, name+"=") })
		if i < 0 {
			options = append(options, name+"="+mode)
		} else if given, err := strconv.ParseInt(strings.TrimPrefix(options[i], name+"="), 0, 0); err == nil && given >= 0 {
			options[i] = fmt.Sprintf("%s=0%o", name, given|0o070)
		}
	}
	return options
}
