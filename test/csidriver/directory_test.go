package csidriver_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/flex2csi/flex2csi/test/testenv"
)

// TestDirectories: volumes that are no disks keep their files and are told
// apart.
func TestDirectories(t *testing.T) {
	testenv.Need(t, "mount")
	w := newWorld(t, "--directories", "--attach")
	for _, id := range []string{"disk-1", "disk-2"} {
		w.create(id, mib(1), nil)
		published, err := w.attach(id, "node-1")
		w.want(err, codes.OK)
		stage := &csi.NodeStageVolumeRequest{VolumeId: id, StagingTargetPath: w.staging(id), VolumeCapability: multi(""), PublishContext: published}
		_, err = w.NodeStageVolume(ctx(t), stage)
		w.want(err, codes.OK)
		_, err = w.NodeStageVolume(ctx(t), stage)
		w.want(err, codes.OK)
		_, err = w.NodePublishVolume(ctx(t), &csi.NodePublishVolumeRequest{VolumeId: id, StagingTargetPath: w.staging(id), TargetPath: w.target(id), VolumeCapability: multi(""), PublishContext: published})
		w.want(err, codes.OK)
		if err := w.write(id, id); err != nil {
			t.Error(err)
		}
	}
	w.want(w.unpublish("disk-1", "disk-2"), codes.FailedPrecondition)
	w.want(w.unstage("disk-1"), codes.FailedPrecondition)
	w.want(w.detach("disk-1", "node-1"), codes.FailedPrecondition)
	for _, id := range []string{"disk-1", "disk-2"} {
		if b, err := os.ReadFile(filepath.Join(w.disks(), "volumes", id+".d", "data")); err != nil || string(b) != id {
			t.Errorf("volume %s holds %q, %v", id, b, err)
		}
		w.want(w.unpublish(id, id), codes.OK)
		w.want(w.unstage(id), codes.OK)
		w.want(w.detach(id, "node-1"), codes.OK)
		w.want(w.delete(id), codes.OK)
	}
	wantNothingLeft(t, w)
	if left, err := filepath.Glob(filepath.Join(w.disks(), "volumes/*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
