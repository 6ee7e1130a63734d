package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// smb stands for csi-driver-smb. It has no Kerberos and no volumes of its own.
func smb() Kind {
	return Kind{
		CSIDriver: "smb.csi.k8s.io", Program: "smbplugin", Stage: true, MountGroup: true, mount: mountSMB,
		Args: func(endpoint, nodeID string) []string {
			return []string{"--endpoint=unix://" + endpoint, "--nodeid=" + nodeID}
		},
	}
}

func mountSMB(ctx context.Context, v volume, dir string) error {
	source := lowered(v.context, "source")
	if source == "" {
		return status.Errorf(codes.InvalidArgument, "source field is missing, current context: %v", v.context)
	}
	if subDir := lowered(v.context, "subdir"); subDir != "" {
		source = strings.TrimRight(source, "/") + "/" + subDir
	}
	options := slices.Clone(v.capability.GetMountFlags())
	if group := v.capability.GetVolumeMountGroup(); group != "" && !slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, "gid=") }) {
		options = append(options, "gid="+group, "file_mode=0774", "dir_mode=0775")
	}
	// mount.cifs takes them from its environment as well, where other users of the node see nothing.
	var env []string
	if !slices.Contains(options, "guest") && !slices.Contains(options, "sec=none") {
		env = []string{"USER=" + strings.TrimSpace(lowered(v.secrets, "username")), "PASSWD=" + strings.TrimSpace(lowered(v.secrets, "password"))}
	}
	if domain := strings.TrimSpace(lowered(v.secrets, "domain")); domain != "" {
		options = append(options, fmt.Sprintf("domain=%s", domain))
	}
	return mount(ctx, env, "cifs", source, dir, options...)
}
