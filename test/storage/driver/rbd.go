package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// rbd stands for the RBD driver of ceph-csi 3.12, as Rook runs it, on images that it did not make.
// It has krbd only, and no encryption, journal, statistics or network namespaces.
func rbd() Kind {
	const name = "rook-ceph.rbd.csi.ceph.com"
	return Kind{
		CSIDriver: name, Program: "cephcsi", Args: cephArgs("rbd", name), Stage: true, Below: true,
		mount: mountImage, release: unmapImage, expand: growImage,
	}
}

// An image is what the staging path keeps of one: only NodeStageVolume has the volume context.
type image struct{ Pool, Name string }

func (i image) spec() string { return i.Pool + "/" + i.Name }

// stash is the name of that file, next to the directory with the mount.
const stash = "image-meta.json"

func (i image) keep(staging string) error {
	text, err := json.Marshal(i)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(staging, stash), text, 0o600)
}

func kept(staging string) (image, error) {
	var i image
	text, err := os.ReadFile(filepath.Join(staging, stash))
	if err != nil {
		return i, err
	}
	return i, json.Unmarshal(text, &i)
}

func mountImage(ctx context.Context, v volume, dir string) error {
	if v.mode == csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER {
		return status.Error(codes.InvalidArgument, "rbd: RWX access mode request is only valid for volumes with access type `block`")
	}
	if v.context["staticVolume"] != "true" || v.context["pool"] == "" {
		return status.Error(codes.Internal, "empty pool name or topologyConstrainedPools to provision volume")
	}
	user, remove, err := newCephUser(v)
	if err != nil {
		return err
	}
	defer remove()
	mons, err := monitors(v)
	if err != nil {
		return err
	}
	i, staging := image{v.context["pool"], v.id}, filepath.Dir(dir)
	login := []string{"--id", user.id, "-m", mons, "--keyfile=" + user.keyFile}
	if err := wantMappable(ctx, i, login); err != nil {
		return err
	}
	if err := i.keep(staging); err != nil {
		return err
	}
	device, err := i.attach(ctx, v, login)
	if err == nil {
		err = mountDevice(ctx, v, device, dir)
	}
	if err != nil {
		return errors.Join(err, os.Remove(dir), undo(ctx, device), os.Remove(filepath.Join(staging, stash)))
	}
	return nil
}

// undo unmaps the device of a volume that could not be mounted.
func undo(ctx context.Context, device string) error {
	if device == "" {
		return nil
	}
	return unmap(ctx, device)
}

// wantMappable returns an error unless the kernel knows all features of an image.
func wantMappable(ctx context.Context, i image, login []string) error {
	var info struct{ Features []string }
	if err := query(ctx, &info, "rbd", slices.Concat(login, []string{"info", "--format=json", i.spec()})...); err != nil {
		return err
	}
	text, err := os.ReadFile("/sys/bus/rbd/supported_features")
	if err != nil {
		return err
	}
	supported, err := strconv.ParseUint(strings.TrimSpace(string(text)), 0, 64)
	if err != nil {
		return err
	}
	for _, name := range info.Features {
		if supported&featureBits()[name] == 0 {
			return status.Error(codes.Internal, "unsupported krbd Feature")
		}
	}
	return nil
}

// featureBits are those of rbd_features.h.
func featureBits() map[string]uint64 {
	return map[string]uint64{
		"layering": 1, "striping": 2, "exclusive-lock": 4, "object-map": 8, "fast-diff": 16,
		"deep-flatten": 32, "journaling": 64, "data-pool": 128, "operations": 256, "migrating": 512,
	}
}

// attach returns the device of an image: one that is there, also of another program, or a new one.
func (i image) attach(ctx context.Context, v volume, login []string) (string, error) {
	device, err := i.device(ctx)
	if err != nil || device != "" {
		return device, err
	}
	args := slices.Concat(login, []string{"map", i.spec(), "--device-type", "krbd", "--options", "noudev"})
	if more := v.context["mapOptions"]; more != "" {
		args = append(args, "--options", more)
	}
	if v.mode == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY {
		args = append(args, "--read-only")
	} else if err := i.waitUnused(ctx, login); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "rbd", args...).Output()
	if err != nil {
		if exit, is := errors.AsType[*exec.ExitError](err); is {
			err = failure(err, "rbd", args, exit.Stderr)
		}
		return "", fmt.Errorf("rbd: map failed with error %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// device returns the one that this node has of an image; empty: none.
func (i image) device(ctx context.Context) (string, error) {
	var mapped []struct{ Pool, Name, Device string }
	if err := query(ctx, &mapped, "rbd", "device", "list", "--format=json", "--device-type", "krbd"); err != nil {
		return "", err
	}
	for _, m := range mapped {
		if (image{m.Pool, m.Name}) == i {
			return m.Device, nil
		}
	}
	return "", nil
}

// waitUnused waits until no client watches an image, 49 seconds at most.
func (i image) waitUnused(ctx context.Context, login []string) error {
	for pause, n := time.Second, 0; n < 10; pause, n = pause*7/5, n+1 {
		if n > 0 {
			time.Sleep(pause)
		}
		var now struct{ Watchers []any }
		if err := query(ctx, &now, "rbd", slices.Concat(login, []string{"status", "--format=json", i.spec()})...); err != nil {
			return fmt.Errorf("fail to check rbd image status: (%w)", err)
		}
		if len(now.Watchers) == 0 {
			return nil
		}
	}
	return fmt.Errorf("rbd image %s is still being used", i.spec())
}

// mountDevice mounts what a device has, or a new filesystem if it has nothing, in the device's size.
func mountDevice(ctx context.Context, v volume, device, dir string) error {
	fsType := v.capability.GetFsType()
	options := append([]string{"_netdev"}, v.capability.GetMountFlags()...)
	if fsType == "xfs" {
		options = append(options, "nouuid")
	}
	switch v.mode {
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		return mount(ctx, nil, fsType, device, dir, append(options, "ro")...)
	}
	if err := format(ctx, device, fsType); err != nil {
		return err
	}
	if err := mount(ctx, nil, fsType, device, dir, options...); err != nil {
		return err
	}
	return grow(ctx, device, fsType, dir)
}

// grow gives a mounted filesystem the size of its device.
func grow(ctx context.Context, device, fsType, dir string) error {
	if fsType == "xfs" {
		return run(ctx, "xfs_growfs", dir)
	}
	return run(ctx, "resize2fs", device)
}

func growImage(ctx context.Context, v volume, staging string) error {
	i, err := kept(staging)
	if err != nil {
		return err
	}
	device, err := i.device(ctx)
	if err != nil || device == "" {
		return status.Errorf(codes.Internal, "failed to get device for stagingtarget path %v: %v", staging, err)
	}
	return grow(ctx, device, v.capability.GetFsType(), filepath.Join(staging, v.id))
}

// unmapImage unmaps what is staged at a path. It forgets the image only then.
func unmapImage(ctx context.Context, staging string) error {
	i, err := kept(staging)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = unmap(ctx, i.spec())
	}
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return os.Remove(filepath.Join(staging, stash))
}

// unmap unmaps an image or a device, if it is mapped.
func unmap(ctx context.Context, spec string) error {
	err := runCeph(ctx, "rbd", "unmap", spec, "--device-type", "krbd", "--options", "noudev")
	if err != nil && !strings.Contains(err.Error(), "not a mapped image or snapshot") {
		return fmt.Errorf("rbd: unmap for spec (%s) failed (%w)", spec, err)
	}
	return nil
}
