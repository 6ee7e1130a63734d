package e2e

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// gce is the GCE PD CSI driver's own code, on loop devices (test/gcepd).
func gce() driver {
	return driver{flex: "example.com/gce", csi: "pd.csi.storage.gke.io"}
}

// gceZone begins the handles of its disks.
const gceZone = "projects/test-project/zones/country-region-zone/disks/"

// gceDisk makes a disk as the cloud does, and not as drivers of the tests do.
func gceDisk(v *volume) {
	v.handle = gceZone + v.name
	v.make = func(ctx context.Context, c csi.ControllerClient) error {
		_, err := c.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name: path.Base(v.handle), Parameters: map[string]string{"type": "pd-standard"},
			VolumeCapabilities: []*csi.VolumeCapability{{
				AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
				AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
			}},
		})
		return err
	}
}

// migrateGCE: a driver that was not written for these tests, and that detaches a volume
// on request even if it is mounted.
func migrateGCE(t *T) {
	t.must(t.node.Import(t.ctx(), filepath.Join(os.Getenv("FLEX_IMAGES"), "large", "gcepd.tar")))
	t.deploy("manifests/gce", gce())
	t.must(t.rolledOut(t.ctx(), "csi"))
	v := t.describe(gce(), "data", gceDisk)
	t.wait("the driver's socket", func() error { return v.createDisk(t.ctx()) })
	t.keep(v)
	t.follow(v)

	w := t.writer("pod", v)
	was := t.persistentVolume(v)
	t.toCSI(v.name)
	t.wantCSI(v, was)
	t.toFlex(v.name)
	t.wantFlex(v, was)
	t.toCSI(v.name)
	t.wantCSI(v, was)
	t.wantMounts(v, w.pod, true, true)
	w.writes()
	w.note()
	t.delete(w.pod)
	next := w.next("next")
	t.wantMounts(v, next.pod, false, true)
	next.writes()
	t.delete(next.pod)
	t.wait("the disk to be detached", func() error {
		if device, err := os.Readlink(filepath.Join(v.storage(), "by-id", "google-"+path.Base(v.handle))); err == nil {
			return fmt.Errorf("it is %s", device)
		}
		return nil
	})
}
