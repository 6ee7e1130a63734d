package contract

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/volume"
)

// newSecret puts a Secret into the API and refers to it from the volume.
func (n *node) newSecret(v *vol, kind v1.SecretType, data map[string]string) {
	n.t.Helper()
	secret := &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceA, Name: "secret"},
		Type:       kind,
		Data:       map[string][]byte{},
	}
	for key, value := range data {
		secret.Data[key] = []byte(value)
	}
	_, err := n.client.CoreV1().Secrets(namespaceA).Create(context.Background(), secret, metav1.CreateOptions{})
	n.must(err)
	v.pv.Spec.FlexVolume.SecretRef = &v1.SecretReference{Namespace: namespaceA, Name: "secret"}
}

// TestSecretOfAnotherTypeIsRefusedByKubernetes, before we are called; this is
// the text that users see.
func TestSecretOfAnotherTypeIsRefusedByKubernetes(t *testing.T) {
	n := newNode(t, false)
	v, pod := n.newVolume(memory(), "pv-1"), newPod("a")
	n.newSecret(v, v1.SecretTypeOpaque, map[string]string{"password": "x"})
	err := n.mount(v, pod)
	if err == nil || !strings.Contains(err.Error(), "cannot get secret of type "+driverName) {
		t.Errorf("mount with an Opaque secret: %v", err)
	}
	if calls := n.runner.sequence(); len(calls) > 0 {
		t.Errorf("the kubelet called %q", calls)
	}
	checkFailedSetup(n, v, pod)
}

// TestMountOptionsOfAPVAreRefusedByKubernetes: ours are an option of the volume.
func TestMountOptionsOfAPVAreRefusedByKubernetes(t *testing.T) {
	n := newNode(t, false)
	v, pod := n.newVolume(memory(), "pv-1"), newPod("a")
	v.pv.Spec.MountOptions = []string{"noatime"}
	err := n.mount(v, pod)
	if err == nil || !strings.Contains(err.Error(), "mount options are not supported") {
		t.Errorf("mount of a PV with mountOptions: %v", err)
	}
	v.pv.Spec.MountOptions = nil
	v.pv.Spec.FlexVolume.Options["mountOptions"] = "noatime,nodev"
	n.must(n.mount(v, pod))
	options := strings.Join(mountsAt(t, v.dir(pod))[0].MountOptions, ",")
	if !strings.Contains(options, "noatime") || !strings.Contains(options, "nodev") {
		t.Errorf("mounted with %s", options)
	}
	n.takeDown(v, pod)
}

// TestRawBlockIsRefusedByKubernetes: the plugin maps no devices.
func TestRawBlockIsRefusedByKubernetes(t *testing.T) {
	n := newNode(t, true)
	v, pod := n.newVolume(imageExt4(), "pv-1"), newPod("a")
	block := v1.PersistentVolumeBlock
	v.pv.Spec.VolumeMode = &block
	_, err := n.gen.GenerateMapVolumeFunc(attachTimeout, n.toMount(v, pod), n.asw)
	if err == nil || !strings.Contains(err.Error(), "BlockVolumeMapper") {
		t.Errorf("map of a block volume: %v", err)
	}
}

// inline is a volume that a pod's author has written into the pod.
func (n *node) inline(name string, options map[string]string) *vol {
	return &vol{
		n: n, kind: memory(), pv: &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{FlexVolume: &v1.FlexPersistentVolumeSource{}},
		}},
		spec: volume.NewSpecFromVolume(&v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
			FlexVolume: &v1.FlexVolumeSource{Driver: driverName, Options: options},
		}}),
	}
}

// TestInlineVolumesOfOneName: with attach:false each pod has its own; with
// attach:true the kubelet takes them for one volume, and a new one panics at the
// second pod, which we can only document. Nothing may be left of either.
func TestInlineVolumesOfOneName(t *testing.T) {
	for _, attach := range []bool{false, true} {
		n := newNode(t, attach)
		v := n.inline("data", map[string]string{"medium": "memory", "size": "1Mi"})
		a, b := newPod("a"), newPod("b")
		n.attach(v)
		n.must(n.mount(v, a))
		n.writeFile(filepath.Join(v.dir(a), "file"), "of a")
		err := n.mount(v, b)
		if panicked := err != nil && strings.Contains(err.Error(), "nil pointer"); panicked != (attach && panicsAtSecondInline) {
			t.Errorf("attach=%t: mount for the second pod: %v", attach, err)
		}
		pods := []*v1.Pod{a}
		if err == nil {
			pods = append(pods, b)
			if exists(filepath.Join(v.dir(b), "file")) {
				t.Error("one pod sees the files of the other")
			}
		}
		n.checkFile(filepath.Join(v.dir(a), "file"), "of a")
		n.takeDown(v, pods...)
	}
}
