package driver

import (
	"context"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// nfs stands for csi-driver-nfs 4.13. It has no mountPermissions, which are 0 there unless set.
func nfs() Kind {
	return Kind{
		CSIDriver: "nfs.csi.k8s.io", Program: "nfsplugin", Force: true, mount: mountNFS, intact: notStale,
		Args: func(endpoint, nodeID string) []string {
			return []string{"--endpoint=unix://" + endpoint, "--nodeid=" + nodeID}
		},
	}
}

// notStale reports whether a directory is still the one that was mounted, as far as the server
// tells: what is not is mounted again.
func notStale(dir string) bool {
	_, err := os.Lstat(dir)
	return !errors.Is(err, unix.ESTALE)
}

func mountNFS(ctx context.Context, v volume, dir string) error {
	server, share, subDir := lowered(v.context, "server"), lowered(v.context, "share"), lowered(v.context, "subdir")
	if server == "" || share == "" {
		return status.Error(codes.InvalidArgument, "server and share are required parameters")
	}
	source := server + ":" + share
	if subDir != "" {
		source = strings.TrimRight(source, "/") + "/" + subDir
	}
	options := v.capability.GetMountFlags()
	if v.readOnly {
		options = append(options, "ro")
	}
	if more := lowered(v.context, "mountoptions"); more != "" {
		options = append(options, more)
	}
	err := mount(ctx, nil, "nfs", source, dir, options...)
	if err != nil && strings.Contains(err.Error(), "invalid argument") {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return err
}

// lowered returns the value of a key in any case.
func lowered(m map[string]string, key string) string {
	for k, v := range m {
		if strings.ToLower(k) == key {
			return v
		}
	}
	return ""
}
