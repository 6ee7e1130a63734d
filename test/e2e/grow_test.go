package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// growScenarios enlarge a claim. The kubelet gets to a volume that is in use with
// its next look at the pod, within a minute or two.
func growScenarios() []scenario {
	// ext4 grows online only with CAP_SYS_RESOURCE, which not every machine has.
	xfs := []volumeOption{fsType("xfs"), size(before)}
	return []scenario{
		{"grow-online", "a claim is enlarged under its pod: disk, filesystem and claim grow", func(t *T) { t.growOnline(t.volume(disk(), "data", xfs...)) }},
		{"grow-attached", "the same with attach: true", func(t *T) { t.growOnline(t.volume(attached(), "data", xfs...)) }},
		{"grow-local", "the same with a disk image of the backend local", func(t *T) { t.growOnline(t.localVolume(local(), xfs...)) }},
		{"grow-between-pods", "a claim is enlarged while no pod has it: the next pod finds it grown", growBetween},
		{"grow-offline-driver", "a driver that grows only what is not in use: an event says so, and the next pod has it", growOffline},
	}
}

const (
	before, after = 320 * mebi, 640 * mebi
	// df tells the size of the filesystem, in KiB. Its own needs take a part.
	df = "df -k /data | awk 'END{print $2}'"
)

// enlarge has the claim of a volume ask for more.
func (t *T) enlarge(v *volume) {
	t.Helper()
	patch, err := json.Marshal(corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceStorage: *resource.NewQuantity(after, resource.BinarySI),
		}},
	}})
	t.must(err)
	_, err = t.client.CoreV1().PersistentVolumeClaims(t.Namespace).Patch(t.ctx(), v.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	t.must(err)
}

// grown says whether a pod sees a larger filesystem.
func (t *T) grown(pod *corev1.Pod) error {
	text, err := t.trySh(pod, df)
	if err != nil {
		return withText(err, text)
	}
	kibi, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	if least := after * 8 / 10; kibi*1024 < least {
		return fmt.Errorf("the filesystem has %d bytes, want at least %d", kibi*1024, least)
	}
	return nil
}

// waitGrown waits until the pod sees it, and the claim says it.
func (t *T) waitGrown(v *volume, pod *corev1.Pod) {
	t.Helper()
	t.wait("a larger filesystem", func() error { return t.grown(pod) })
	t.wait("a larger claim", func() error {
		claim, err := t.client.CoreV1().PersistentVolumeClaims(t.Namespace).Get(t.ctx(), v.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := claim.Status.Capacity.Storage().Value(); got != after {
			return fmt.Errorf("the claim has %d, want %d", got, after)
		}
		return nil
	})
}

func (t *T) growOnline(v *volume) {
	pod := t.start("pod", v.at("/data"))
	t.sh(pod, "echo kept > /data/file")
	if err := t.grown(pod); err == nil {
		t.Fatal("the filesystem is as large before it is grown")
	}
	t.enlarge(v)
	t.waitGrown(v, pod)
	t.wantSh(pod, "cat /data/file", "kept")
	t.delete(pod)
}

func growBetween(t *T) {
	v := t.volume(disk(), "data", fsType("xfs"), size(before))
	pod := t.start("first", v.at("/data"))
	t.sh(pod, "echo kept > /data/file && sync")
	t.delete(pod)
	t.enlarge(v)
	pod = t.start("second", v.at("/data"))
	t.waitGrown(v, pod)
	t.wantSh(pod, "cat /data/file", "kept")
	t.delete(pod)
}

func growOffline(t *T) {
	v := t.volume(offline(), "data", fsType("xfs"), size(before))
	pod := t.start("first", v.at("/data"))
	t.sh(pod, "echo kept > /data/file && sync")
	t.enlarge(v)
	t.waitEvent(pod, "cannot expand the volume now")
	t.wantSh(pod, "cat /data/file", "kept")
	t.delete(pod)
	pod = t.start("second", v.at("/data"))
	t.waitGrown(v, pod)
	t.wantSh(pod, "cat /data/file", "kept")
	t.delete(pod)
}
