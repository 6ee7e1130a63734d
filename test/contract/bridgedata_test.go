package contract

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/volume"
)

// TestSecretReachesOnlyTheCSIDriver: of all callouts only mount has the secret, so that
// is when the volume is staged. A wrong secret is not shown either.
func TestSecretReachesOnlyTheCSIDriver(t *testing.T) {
	for _, attach := range bothModes() {
		for _, right := range []bool{true, false} {
			t.Run(fmt.Sprintf("attach=%t/right=%t", attach, right), func(t *testing.T) {
				begin, secret := time.Now().Add(-time.Second), randomSecret()
				k := csiExt4()
				k.csi.config = []string{"  secrets:", "    nodeStage:", "      fromFlexSecret: {password: word}"}
				n := k.newNode(t, attach)
				v, pod := n.newVolume(k, "pv-1"), newPod("a")
				v.pv.Spec.FlexVolume.Options["passwordSHA256"] = fmt.Sprintf("%x", sha256.Sum256([]byte(secret)))
				given := secret
				if !right {
					given = randomSecret()
				}
				n.newSecret(v, driverName, map[string]string{"word": given})
				n.attach(v)
				err := n.mount(v, pod)
				if (err == nil) != right {
					t.Errorf("mount: %v", err)
				}
				if err != nil && !strings.Contains(err.Error(), "password") {
					t.Errorf("mount: %v, want a message about the password", err)
				}
				n.checkNoSecret(given, begin, fmt.Sprint(err))
				pods := []*v1.Pod{pod}
				if err != nil {
					pods = nil
				}
				n.takeDown(v, pods...)
				n.checkNoSecret(given, begin)
			})
		}
	}
}

// TestMountOptionsReachTheCSIDriver: an option of the volume holds them.
func TestMountOptionsReachTheCSIDriver(t *testing.T) {
	k := csiExt4()
	n := k.newNode(t, false)
	v, pod := n.newVolume(k, "pv-1"), newPod("a")
	v.pv.Spec.FlexVolume.Options["mountOptions"] = "noatime,nodev"
	n.must(n.mount(v, pod))
	for _, want := range []string{"noatime", "nodev"} {
		if options := mountsAt(t, v.dir(pod))[0].MountOptions; !slices.Contains(options, want) {
			t.Errorf("the pod's mount has the options %q, want %s", options, want)
		}
	}
	n.takeDown(v, pod)
}

// TestExpansionThatTheCSIDriverRefuses: the user is told, the claim keeps its
// size, and the pod its volume.
func TestExpansionThatTheCSIDriverRefuses(t *testing.T) {
	for _, expansion := range []string{"none", "offline"} {
		t.Run(expansion, func(t *testing.T) {
			k := csiExt4()
			k.csi = ownDriver(k.size, "--expansion", expansion)
			n := k.newNode(t, false)
			v, pod := n.newVolume(k, "pv-1"), newPod("a")
			n.must(n.mount(v, pod))
			plugin := n.plugin().(volume.NodeExpandableVolumePlugin)
			done, err := plugin.NodeExpand(volume.NodeResizeOptions{
				VolumeSpec: v.spec, DeviceMountPath: v.dir(pod), NewSize: resource.MustParse("128Mi"), OldSize: resource.MustParse(k.size),
			})
			if done || err == nil {
				t.Errorf("expandfs: %t, %v", done, err)
			}
			n.writeFile(filepath.Join(v.dir(pod), "file"), "x")
			n.takeDown(v, pod)
		})
	}
}

// TestOneHandleInTwoVolumes: it is staged once on a node, and stays until the
// last pod of either has gone.
func TestOneHandleInTwoVolumes(t *testing.T) {
	k := csiExt4()
	n := k.newNode(t, false)
	v, w, a, b := n.newVolume(k, "pv-1"), n.newVolume(k, "pv-2"), newPod("a"), newPod("b")
	w.pv.Spec.FlexVolume.Options["volumeID"] = "pv-1"
	n.must(n.mount(v, a))
	n.writeFile(filepath.Join(v.dir(a), "file"), "x")
	n.must(n.mount(w, b))
	n.checkFile(filepath.Join(w.dir(b), "file"), "x")
	n.must(n.unmount(v, a))
	n.checkFile(filepath.Join(w.dir(b), "file"), "x")
	n.takeDown(w, b)
}

// TestInlineVolumeIsRefusedByItsName: a pod's author could name any handle. A
// callout does not tell an inline volume from a PersistentVolume, except by the
// name, if those of the cluster have a form.
func TestInlineVolumeIsRefusedByItsName(t *testing.T) {
	k := csiExt4()
	k.csi.config = []string{"  pvNamePattern: pv-[0-9]+"}
	n := k.newNode(t, false)
	v, inline, pod := n.newVolume(k, "pv-1"), n.inline("data", map[string]string{"volumeID": "pv-1"}), newPod("a")
	if err := n.mount(inline, pod); err == nil || !strings.Contains(err.Error(), "inline") {
		t.Errorf("mount of an inline volume: %v", err)
	}
	checkFailedSetup(n, inline, pod)
	n.must(n.mount(v, pod))
	n.takeDown(v, pod)
}
