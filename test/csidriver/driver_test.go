package csidriver_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/flex2csi/flex2csi/test/csidriver"
	"github.com/flex2csi/flex2csi/test/csidriver/calls"
	"github.com/flex2csi/flex2csi/test/testenv"
)

func TestLife(t *testing.T) {
	for _, fs := range []string{"ext4", "xfs", "btrfs"} {
		t.Run(fs, func(t *testing.T) {
			testenv.Need(t, fs)
			w := newWorld(t)
			w.create("disk-1", mib(320), nil)
			w.want(w.stage("disk-1", multi(fs)), codes.OK)
			w.want(w.publish("a", multi(fs), false), codes.OK)
			w.want(w.publish("b", multi(fs), true), codes.OK)
			if err := w.write("a", fs); err != nil {
				t.Fatal(err)
			}
			w.wantData("b", fs)
			if err := w.write("b", "more"); !errors.Is(err, unix.EROFS) {
				t.Errorf("write through a read-only target: %v", err)
			}
			w.want(w.unstage("disk-1"), codes.FailedPrecondition)
			w.want(w.delete("disk-1"), codes.FailedPrecondition)
			w.want(w.unpublish("disk-1", "a"), codes.OK)
			w.want(w.unpublish("disk-1", "b"), codes.OK)
			w.want(w.unstage("disk-1"), codes.OK)
			w.want(w.unstage("disk-1"), codes.OK)
			w.wantIdle()

			w.want(w.stage("disk-1", multi("")), codes.OK)
			w.want(w.publish("c", multi(""), false), codes.OK)
			w.wantData("c", fs)
			w.want(w.unpublish("disk-1", "c"), codes.OK)
			w.want(w.unstage("disk-1"), codes.OK)
			w.want(w.delete("disk-1"), codes.OK)
			w.wantIdle()
			wantNothingLeft(t, w)
		})
	}
}

func wantNothingLeft(t *testing.T, w *world) {
	t.Helper()
	list, err := calls.Read(w.callLog())
	if err != nil {
		t.Fatal(err)
	}
	if left := calls.Leftovers(list); len(left) > 0 {
		t.Errorf("never undone: %q", left)
	}
}

func TestNoStage(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t, "--no-stage")
	w.create("disk-1", mib(64), nil)
	w.want(w.stage("disk-1", multi("")), codes.Unimplemented)
	w.want(w.publish("a", multi(""), false), codes.OK)
	w.want(w.publish("a", multi(""), false), codes.OK)
	w.want(w.publish("b", multi(""), true), codes.OK)
	if err := w.write("a", "hello"); err != nil {
		t.Fatal(err)
	}
	w.wantData("b", "hello")
	if err := w.write("b", "more"); !errors.Is(err, unix.EROFS) {
		t.Errorf("write through a read-only target: %v", err)
	}
	w.want(w.unpublish("disk-1", "a"), codes.OK)
	w.wantData("b", "hello")
	w.want(w.unpublish("disk-1", "b"), codes.OK)
	w.wantIdle()
}

// TestRefusals has the answers that the specification wants, and those where
// this driver is stricter.
func TestRefusals(t *testing.T) {
	testenv.Need(t, "ext4", "xfs")
	w := newWorld(t)
	w.create("disk-1", mib(64), map[string]string{"color": "blue"})
	one := mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "")

	w.want(w.publish("a", one, false), codes.FailedPrecondition) // not staged
	w.want(w.stage("none", one), codes.NotFound)
	w.want(w.stage("disk-1", &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{}}), codes.InvalidArgument)
	_, err := w.NodeStageVolume(ctx(t), &csi.NodeStageVolumeRequest{VolumeId: "disk-1", StagingTargetPath: w.dir + "/no/such", VolumeCapability: one})
	w.want(err, codes.FailedPrecondition)
	_, err = w.NodeStageVolume(ctx(t), &csi.NodeStageVolumeRequest{VolumeId: "disk-1", StagingTargetPath: w.staging("x"), VolumeCapability: one, VolumeContext: map[string]string{"color": "red"}})
	w.want(err, codes.InvalidArgument)
	_, err = w.NodeStageVolume(ctx(t), &csi.NodeStageVolumeRequest{VolumeId: "disk-1", StagingTargetPath: w.staging("x"), VolumeCapability: one, PublishContext: map[string]string{"token": "x"}})
	w.want(err, codes.InvalidArgument) // does not attach
	readers := mode(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, "")
	w.want(w.stage("disk-1", readers), codes.FailedPrecondition) // empty, and not to be written to

	w.want(w.stage("disk-1", one), codes.OK)
	w.want(w.stage("disk-1", one), codes.OK)
	w.want(w.stage("disk-1", multi("")), codes.AlreadyExists)
	_, err = w.NodeStageVolume(ctx(t), &csi.NodeStageVolumeRequest{VolumeId: "disk-1", StagingTargetPath: w.staging("elsewhere"), VolumeCapability: one})
	w.want(err, codes.FailedPrecondition)
	_, err = w.NodePublishVolume(ctx(t), &csi.NodePublishVolumeRequest{VolumeId: "disk-1", StagingTargetPath: w.staging("disk-1"), TargetPath: w.dir + "/no/such/parent", VolumeCapability: one})
	w.want(err, codes.FailedPrecondition)
	_, err = w.NodePublishVolume(ctx(t), &csi.NodePublishVolumeRequest{VolumeId: "disk-1", TargetPath: w.target("a"), VolumeCapability: one})
	w.want(err, codes.FailedPrecondition) // no staging path

	w.want(w.publish("a", one, false), codes.OK)
	w.want(w.publish("a", one, false), codes.OK)
	w.want(w.publish("a", one, true), codes.AlreadyExists)
	w.want(w.publish("b", one, false), codes.FailedPrecondition) // single writer
	w.want(w.unpublish("disk-1", "b"), codes.OK)                 // never was
	w.want(w.unpublish("disk-1", "a"), codes.OK)
	w.want(w.unpublish("disk-1", "a"), codes.OK)
	w.want(w.unstage("disk-1"), codes.OK)
	w.want(w.stage("disk-1", mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "xfs")), codes.FailedPrecondition) // holds ext4
	w.wantIdle()
}

// TestForeignMount: the mount of another process at a path stays.
func TestForeignMount(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	w.create("disk-1", mib(64), nil)
	for _, dir := range []string{w.staging("disk-1"), w.target("a")} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Fatal(err)
		}
	}
	w.want(w.stage("disk-1", multi("")), codes.FailedPrecondition)
	w.want(w.unstage("disk-1"), codes.FailedPrecondition)
	w.want(w.unpublish("disk-1", "a"), codes.FailedPrecondition)
	for _, dir := range []string{w.staging("disk-1"), w.target("a")} {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}
	w.want(w.unpublish("disk-1", "a"), codes.OK)
	w.wantIdle()
}

func TestAttach(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t, "--attach", "--known-node", "node-2", "--max-volumes", "2")
	for _, id := range []string{"disk-1", "disk-2", "disk-3"} {
		w.create(id, mib(64), nil)
	}
	w.want(w.stage("disk-1", multi("")), codes.FailedPrecondition)
	first, err := w.attach("disk-1", "node-1")
	w.want(err, codes.OK)
	_, err = w.attach("disk-1", "node-2")
	w.want(err, codes.FailedPrecondition)
	w.want(w.stage("disk-1", multi("")), codes.FailedPrecondition) // without its publish_context
	w.want(w.detach("disk-1", "node-1"), codes.OK)

	again, err := w.attach("disk-1", "node-1")
	w.want(err, codes.OK)
	stage := func(published map[string]string) error {
		_, err := w.NodeStageVolume(ctx(t), &csi.NodeStageVolumeRequest{VolumeId: "disk-1", StagingTargetPath: w.staging("disk-1"), VolumeCapability: multi(""), PublishContext: published})
		return err
	}
	w.want(stage(first), codes.FailedPrecondition) // that of an attachment that is over
	w.restart("--attach", "--known-node", "node-2", "--max-volumes", "2")
	w.want(stage(again), codes.OK)
	w.want(w.detach("disk-1", "node-1"), codes.FailedPrecondition) // still staged
	w.want(w.unstage("disk-1"), codes.OK)

	_, err = w.attach("disk-2", "node-1")
	w.want(err, codes.OK)
	_, err = w.attach("disk-3", "node-1")
	w.want(err, codes.ResourceExhausted)
	_, err = w.attach("disk-3", "node-3")
	w.want(err, codes.NotFound)
	list, err := w.ListVolumes(ctx(t), &csi.ListVolumesRequest{MaxEntries: 2})
	w.want(err, codes.OK)
	if got := list.GetEntries()[0].GetStatus().GetPublishedNodeIds(); len(got) != 1 || got[0] != "node-1" || list.GetNextToken() == "" {
		t.Errorf("disk-1 is published at %v, next token %q", got, list.GetNextToken())
	}
	w.want(w.delete("disk-1"), codes.FailedPrecondition)
	w.want(w.detach("disk-1", ""), codes.OK) // all nodes
	w.want(w.detach("disk-2", "node-1"), codes.OK)
	w.want(w.detach("disk-2", "node-1"), codes.OK)
	w.want(w.detach("none", "node-1"), codes.OK)
	w.want(w.delete("disk-1"), codes.OK)
	w.wantIdle()
	wantNothingLeft(t, w)
}

func TestEphemeral(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t, "--attach")
	publish := func(target string, c *csi.VolumeCapability) error {
		_, err := w.NodePublishVolume(ctx(t), &csi.NodePublishVolumeRequest{
			VolumeId: "csi-1", TargetPath: target, VolumeCapability: c,
			VolumeContext: map[string]string{"csi.storage.k8s.io/ephemeral": "true", "size": "64Mi", "requireSecret": "password"},
			Secrets:       map[string]string{"password": "swordfish"},
		})
		return err
	}
	one := mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "")
	w.want(publish(w.dir+"/no/such/parent", one), codes.FailedPrecondition)
	if volumes, err := csidriver.Inspect(w.disks()); err != nil || len(volumes) > 0 {
		t.Errorf("volumes of a failed publish: %v, %v", volumes, err)
	}
	w.want(publish(w.target("a"), one), codes.OK)
	w.want(publish(w.target("a"), one), codes.OK)
	if got := size(t, w.target("a")); got > mib(64) || got < mib(32) {
		t.Errorf("size %d", got)
	}
	list, err := w.ListVolumes(ctx(t), &csi.ListVolumesRequest{})
	if err != nil || len(list.GetEntries()) > 0 {
		t.Errorf("an ephemeral volume is listed: %v, %v", list, err)
	}
	w.restart("--attach")
	w.want(w.unpublish("csi-1", "a"), codes.OK)
	w.want(w.unpublish("csi-1", "a"), codes.OK)
	entries, err := os.ReadDir(filepath.Join(w.disks(), "volumes"))
	if err != nil || len(entries) > 0 {
		t.Errorf("left of an ephemeral volume: %v, %v", entries, err)
	}
	w.wantIdle()
}

func TestSecrets(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t)
	// The SHA-256 of swordfish.
	parameters := map[string]string{"passwordSHA256": "b9f195c5cc7ef6afadbfbc42892ad47d3b24c6bc94bb510c4564a90a14e8b799"}
	w.create("disk-1", mib(64), parameters)
	stage := func(secrets map[string]string) error {
		_, err := w.NodeStageVolume(ctx(t), &csi.NodeStageVolumeRequest{VolumeId: "disk-1", StagingTargetPath: w.staging("disk-1"), VolumeCapability: multi(""), VolumeContext: parameters, Secrets: secrets})
		return err
	}
	w.want(stage(nil), codes.Unauthenticated)
	w.want(stage(map[string]string{"password": "herring"}), codes.PermissionDenied)
	w.want(stage(map[string]string{"password": "swordfish"}), codes.OK)
	w.want(w.unstage("disk-1"), codes.OK)
	b, err := os.ReadFile(w.callLog())
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"swordfish", "herring"} {
		if contains(string(b), secret) {
			t.Errorf("the log of calls has the secret %s", secret)
		}
	}
}

func TestMountGroup(t *testing.T) {
	testenv.Need(t, "ext4")
	group := multi("")
	group.GetMount().VolumeMountGroup = "4711"
	w := newWorld(t)
	w.create("disk-1", mib(64), nil)
	w.want(w.stage("disk-1", group), codes.InvalidArgument)
	w.restart("--mount-group")
	w.want(w.stage("disk-1", group), codes.OK)
	w.want(w.publish("a", group, false), codes.OK)
	var st unix.Stat_t
	if err := unix.Stat(w.target("a"), &st); err != nil || st.Gid != 4711 || st.Mode&unix.S_ISGID == 0 {
		t.Errorf("group %d, mode %o, %v", st.Gid, st.Mode, err)
	}
	w.want(w.unpublish("disk-1", "a"), codes.OK)
	w.want(w.unstage("disk-1"), codes.OK)
}

func TestOldModes(t *testing.T) {
	testenv.Need(t, "ext4")
	w := newWorld(t, "--old-modes")
	_, err := w.CreateVolume(ctx(t), &csi.CreateVolumeRequest{Name: "disk-1", CapacityRange: &csi.CapacityRange{RequiredBytes: mib(64)}, VolumeCapabilities: []*csi.VolumeCapability{mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "")}})
	w.want(err, codes.OK)
	w.want(w.stage("disk-1", multi("")), codes.InvalidArgument)
	one := mode(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, "")
	w.want(w.stage("disk-1", one), codes.OK)
	w.want(w.publish("a", one, false), codes.OK)
	w.want(w.publish("b", one, false), codes.OK)
	w.want(w.unpublish("disk-1", "a"), codes.OK)
	w.want(w.unpublish("disk-1", "b"), codes.OK)
	w.want(w.unstage("disk-1"), codes.OK)
	w.wantIdle()
}

func TestNoOp(t *testing.T) {
	w := newWorld(t, "--noop", "--attach")
	published, err := w.attach("disk-1", "anywhere")
	w.want(err, codes.OK)
	if published["token"] == "" {
		t.Error("no publish_context")
	}
	w.want(w.stage("disk-1", multi("")), codes.OK)
	w.want(w.publish("a", multi(""), false), codes.OK)
	w.want(w.unpublish("disk-1", "a"), codes.OK)
	w.want(w.unstage("disk-1"), codes.OK)
	w.wantIdle()
}
