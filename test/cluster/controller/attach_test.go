package controller_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

// TestAttach shares one control plane among tests with a volume each.
func TestAttach(t *testing.T) {
	c := start(t)
	for name, test := range map[string]func(*cluster){
		"life":   testLife,
		"away":   testAttacherAway,
		"killed": testControllerKilled,
		"two":    testTwoNodes,
		"gone":   testVolumeGone,
		"lost":   testLost,
		"csi":    testMigrated,
	} {
		t.Run(name, func(t *testing.T) { test(c.with(t)) })
	}
	t.Run("sweeper", func(t *testing.T) { testSweeper(c.with(t)) }) // the last: it takes nodes away
}

// testLife: a volume in use is not detached, even on request.
func testLife(c *cluster) {
	c.flex("life")
	c.pod("life", "node-1")
	c.waitAttached("life", "node-1")
	c.inUse("node-1", "life")
	if out := c.status("life"); !strings.Contains(out, "in use") || !strings.Contains(out, "controller") {
		c.t.Errorf("status --attachments:\n%s", out)
	}
	c.deletePod("life", "node-1")
	time.Sleep(rounds)
	if s := c.callout("detach", "life", "node-1"); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "in use on node node-1") {
		c.t.Errorf("detach of what is in use: %+v", s)
	}
	if o := c.attachment("life", "node-1"); o == nil || o.DeletionTimestamp != nil {
		c.t.Errorf("it is in use, and its VolumeAttachment is %+v", o)
	}
	c.inUse("node-1")
	c.waitDetached("life", "node-1")
	c.wantCalls("life", "attach node-1", "detach node-1")
	if s := c.callout("detach", "life", "node-1"); s.Status != flex.StatusSuccess {
		c.t.Errorf("detach once more: %+v", s)
	}
}

// status runs flex2csi status --attachments with read-only rights.
func (c *cluster) status(args ...string) string {
	c.t.Helper()
	cmd := exec.Command(filepath.Join(os.Getenv("FLEX_PROGRAMS"), "flex2csi"), append([]string{"status", "--attachments", "--kubeconfig", c.Kubeconfig(c.token("status-" + c.short()))}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Errorf("status --attachments: %v\n%s", err, out)
	}
	return string(out)
}

func (c *cluster) short() string { return strings.ToLower(filepath.Base(c.t.Name())) }

// testAttacherAway: kube-controller-manager and the controller are killed while
// an attachment, and then a detachment, is being waited for.
func testAttacherAway(c *cluster) {
	c.attacher.Stop()
	c.flex("away")
	c.pod("away", "node-2")
	c.wait("a VolumeAttachment", func() bool { return c.attachment("away", "node-2") != nil })
	before := c.attachment("away", "node-2").UID
	c.must(c.kcm.Restart())
	c.must(c.controller.Restart())
	time.Sleep(rounds)
	if o := c.attachment("away", "node-2"); o == nil || o.UID != before || o.DeletionTimestamp != nil {
		c.t.Errorf("after the restarts the VolumeAttachment is %+v", o)
	}
	c.must(c.attacher.Start())
	c.waitAttached("away", "node-2")
	c.attacher.Stop()
	c.deletePod("away", "node-2")
	c.wait("its deletion", func() bool { o := c.attachment("away", "node-2"); return o != nil && o.DeletionTimestamp != nil })
	c.controller.Kill()
	c.must(c.controller.Start())
	c.must(c.attacher.Start())
	c.waitDetached("away", "node-2")
	c.wantCalls("away", "attach node-2", "detach node-2")
}

// testControllerKilled: no controller runs when kube-controller-manager calls. It gets a
// Failure that says so, and calls again.
func testControllerKilled(c *cluster) {
	c.controller.Kill()
	if s := c.callout("detach", "killed", "node-1"); s.Status != flex.StatusFailure || !strings.Contains(s.Message, "does not listen at "+c.socket()) {
		c.t.Errorf("detach without a controller: %+v", s)
	}
	c.flex("killed")
	c.pod("killed", "node-1")
	time.Sleep(rounds)
	if o := c.attachment("killed", "node-1"); o != nil {
		c.t.Errorf("without a controller there is %+v", o)
	}
	c.must(c.controller.Start())
	c.waitAttached("killed", "node-1")
	c.deletePod("killed", "node-1")
	c.waitDetached("killed", "node-1")
	c.wantCalls("killed", "attach node-1", "detach node-1")
}

// testTwoNodes: the second waits for the first.
func testTwoNodes(c *cluster) {
	c.flex("two")
	c.pod("two", "node-1")
	c.waitAttached("two", "node-1")
	c.pod("two", "node-2")
	time.Sleep(rounds)
	if o := c.attachment("two", "node-2"); o != nil {
		c.t.Errorf("the second node has %+v", o)
	}
	c.deletePod("two", "node-1")
	c.waitAttached("two", "node-2")
	c.deletePod("two", "node-2")
	c.waitDetached("two", "node-2")
	c.wantCalls("two", "attach node-1", "detach node-1", "attach node-2", "detach node-2")
}

// testVolumeGone: the marks are enough to detach. The pod goes first, and keeps
// the volume a while: kube-controller-manager looks the PersistentVolume up when
// the pod goes, and without one notices that only minutes later.
func testVolumeGone(c *cluster) {
	c.flex("gone")
	c.pod("gone", "node-1")
	c.waitAttached("gone", "node-1")
	c.inUse("node-1", "gone")
	c.deletePod("gone", "node-1")
	time.Sleep(rounds)
	c.deleteVolume("gone")
	c.inUse("node-1")
	c.waitDetached("gone", "node-1")
	c.wantCalls("gone", "attach node-1", "detach node-1")
}

func (c *cluster) deleteVolume(name string) {
	c.t.Helper()
	volumes := c.Admin().CoreV1().PersistentVolumes()
	// The controller that removes the protection does not run here.
	_, err := volumes.Patch(c.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	c.must(err)
	c.must(volumes.Delete(context.Background(), name, metav1.DeleteOptions{}))
}

// testLost: an attachment is deleted. kube-controller-manager, which asks every minute,
// here every second, has the volume attached again.
func testLost(c *cluster) {
	c.flex("lost")
	c.pod("lost", "node-1")
	c.waitAttached("lost", "node-1")
	before := c.attachment("lost", "node-1")
	c.must(c.Admin().StorageV1().VolumeAttachments().Delete(c.t.Context(), before.Name, metav1.DeleteOptions{}))
	c.wait("another VolumeAttachment", func() bool {
		o := c.attachment("lost", "node-1")
		return o != nil && o.UID != before.UID && o.Status.Attached
	})
	c.waitAttached("lost", "node-1")
	c.deletePod("lost", "node-1")
	c.waitDetached("lost", "node-1")
	c.wantCalls("lost", "attach node-1", "detach node-1", "attach node-1", "detach node-1")
}

// testMigrated: the PersistentVolume becomes a CSI one under its pod.
// kube-controller-manager adopts the VolumeAttachment. When the pod goes it
// deletes that as the CSI volume's, and takes the FlexVolume for attached for up
// to a minute more, until it asks us to detach that (pkg/controller/volume/
// attachdetach/populator, findAndRemoveDeletedPods).
func testMigrated(c *cluster) {
	c.flex("csi")
	c.pod("csi", "node-4")
	c.waitAttached("csi", "node-4")
	c.inUse("node-4", "csi")
	before := c.attachment("csi", "node-4").UID
	c.deleteVolume("csi")
	c.PersistentVolume("csi", corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: "csi"}})
	asCSI := "kubernetes.io/csi/" + csiDriver + "^csi"
	c.wait("adoption", func() bool { _, there := c.reported(asCSI, "node-4"); return there })
	time.Sleep(rounds)
	c.inUse("node-4")
	if s := c.callout("detach", "csi", "node-4"); s.Status != flex.StatusSuccess {
		c.t.Errorf("detach of what the control plane has adopted: %+v", s)
	}
	if o := c.attachment("csi", "node-4"); o == nil || o.UID != before || o.DeletionTimestamp != nil {
		c.t.Errorf("the adopted VolumeAttachment is %+v", o)
	}
	c.wantCalls("csi", "attach node-4")
	c.deletePod("csi", "node-4")
	c.wait("the end of the VolumeAttachment", func() bool { return c.attachment("csi", "node-4") == nil })
	isAttached := c.callout("isattached", `{"kubernetes.io/fsType":"ext4","kubernetes.io/pvOrVolumeName":"csi","volumeHandle":"csi"}`, "node-4")
	if isAttached.Attached == nil || !*isAttached.Attached { // which leaves it as it is until detach
		c.t.Errorf("whether the FlexVolume is attached: %+v", isAttached)
	}
	if s := c.callout("detach", "csi", "node-4"); s.Status != flex.StatusSuccess {
		c.t.Errorf("detach of the FlexVolume: %+v", s)
	}
	time.Sleep(rounds)
	c.wantCalls("csi", "attach node-4", "detach node-4")
}
