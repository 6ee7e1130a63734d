package driver

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// lvm stands for OpenEBS' LocalPV-LVM, which needs a cluster: it knows no volume without its
// object LVMVolume. Here the logical volume has what that says and matters to a caller: its
// volume group is the volume context's, and with the tag "shared" (spec.shared: "yes") it may be
// mounted more than once. Neither I/O limits nor expansion are here.
func lvm() Kind {
	return Kind{CSIDriver: "local.csi.openebs.io", mount: mountLVM}
}

func mountLVM(ctx context.Context, v volume, dir string) error {
	group, name := v.context["openebs.io/volgroup"], strings.ToLower(v.id)
	device, err := filepath.EvalSymlinks(filepath.Join("/dev", group, name))
	if err != nil {
		return status.Errorf(codes.Internal, "verifyMount: GetVolumePath failed %v", err)
	}
	tags, err := exec.CommandContext(ctx, "lvs", "--noheadings", "--options", "lv_tags", group+"/"+name).Output()
	if err != nil {
		return err
	}
	mounts, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) {
		mounted, err := filepath.EvalSymlinks(m.Source)
		return err != nil || mounted != device, false
	})
	if err != nil {
		return err
	}
	if len(mounts) > 0 && strings.TrimSpace(string(tags)) != "shared" {
		return status.Errorf(codes.Internal, "verifyMount: device already mounted at %s", mounts[0].Mountpoint)
	}
	options := append(slices.Clone(v.capability.GetMountFlags()), "defaults")
	if v.readOnly {
		options = append(options, "ro")
	} else if err := format(ctx, device, v.capability.GetFsType()); err != nil {
		return err
	}
	return mount(ctx, nil, v.capability.GetFsType(), device, dir, options...)
}

// format makes a filesystem on a device that has nothing.
func format(ctx context.Context, device, fsType string) error {
	cmd := exec.CommandContext(ctx, "blkid", "--probe", device)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 2 { // 2: nothing is there
		if err != nil {
			err = fmt.Errorf("blkid: %w: %s", err, out)
		}
		return err
	}
	return run(ctx, "mkfs."+fsType, device)
}
