package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/distribution"
)

// attachScenarios are what the cluster sees of volumes.
func attachScenarios() []scenario {
	return []scenario{
		{"attachment", "the VolumeAttachment of a volume: ours, by the attacher, gone after the last pod", attachment},
		{"attachment-by-kcm", "attach: true: kube-controller-manager has it in volumesAttached, and lets go", attachmentByKCM},
		{"discovered", "a CSI driver that is installed later is found by its registration; the pod waits, and says for what", discovered},
		{"csidriver-object", "a change of fsGroupPolicy or podInfoOnMount in the CSIDriver object holds for the next pod", csiDriverObject},
		{"inline-stranger", "a pod that names the PersistentVolume of another namespace gets nothing", stranger},
	}
}

// attachmentOf returns the VolumeAttachment of a volume; nil if there is none.
func (t *T) attachmentOf(v *volume) *storagev1.VolumeAttachment {
	t.Helper()
	list, err := t.client.StorageV1().VolumeAttachments().List(t.ctx(), metav1.ListOptions{})
	t.must(err)
	for i := range list.Items {
		if v.isOf(&list.Items[i]) {
			return &list.Items[i]
		}
	}
	return nil
}

// nodeOf is where the scheduler has put a pod.
func (t *T) nodeOf(pod *corev1.Pod) string {
	t.Helper()
	now, err := t.client.CoreV1().Pods(pod.Namespace).Get(t.ctx(), pod.Name, metav1.GetOptions{})
	t.must(err)
	return now.Spec.NodeName
}

func attachment(t *T) {
	v := t.volume(disk(), "data")
	a, b := t.start("a", v.at("/data")), t.start("b", v.at("/data"))
	o := t.attachmentOf(v)
	switch {
	case o == nil:
		t.Fatal("there is no VolumeAttachment")
	case !o.Status.Attached || o.Spec.Attacher != v.csi || o.Spec.NodeName != t.nodeOf(a):
		t.Errorf("VolumeAttachment %+v", o)
	case o.Labels["app.kubernetes.io/managed-by"] != "flex2csi":
		t.Errorf("the VolumeAttachment has the labels %v", o.Labels)
	}
	t.delete(a)
	if again := t.attachmentOf(v); again == nil || again.UID != o.UID {
		t.Errorf("while a pod has the volume its VolumeAttachment is %v", again)
	}
	t.wantSh(b, "echo x > /data/x && cat /data/x", "x")
	t.delete(b)
	t.wait("the end of the VolumeAttachment", func() error {
		if o := t.attachmentOf(v); o != nil {
			return fmt.Errorf("%s is still there", o.Name)
		}
		return nil
	})
}

func attachmentByKCM(t *T) {
	v := t.volume(attached(), "data")
	pod := t.start("pod", v.at("/data"))
	names, err := t.volumesAttached(v)
	t.must(err)
	if len(names) != 1 {
		t.Errorf("volumesAttached of the node has %d of ours", len(names))
	}
	if o := t.attachmentOf(v); o == nil || o.Labels["flex2csi.io/attached-by"] != "controller" {
		t.Errorf("the VolumeAttachment is %+v", o)
	}
	t.delete(pod)
	t.wait("kube-controller-manager to let go", func() error {
		names, err := t.volumesAttached(v)
		if err == nil && len(names) > 0 {
			err = fmt.Errorf("volumesAttached has %v", names)
		}
		return err
	})
}

// volumesAttached are the entries in node.status for a volume of attach: true.
func (t *T) volumesAttached(v *volume) ([]string, error) {
	list, err := t.client.CoreV1().Nodes().List(t.ctx(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	if len(list.Items) != 1 {
		return nil, errors.New("there is more than one node")
	}
	var names []string
	for _, a := range list.Items[0].Status.VolumesAttached {
		if string(a.Name) == v.driver.flex+"/"+v.name {
			names = append(names, string(a.Name))
		}
	}
	return names, nil
}

// discovered: the pod is there before its CSI driver.
func discovered(t *T) {
	v := t.describe(late(), "data")
	t.keep(v)
	pod := t.create(t.newPod("pod", v.at("/data")))
	t.waitEvent(pod, "no driver of this name is registered below")
	t.must(t.apply("manifests/late"))
	t.after = append(t.after, func() {
		out, err := t.kubectl("delete", "-k", "manifests/late", "--wait")
		t.check(withText(err, out))
	})
	t.wait("the driver's socket", func() error { return v.createDisk(t.ctx()) })
	t.waitReady(pod)
	t.wantSh(pod, "echo x > /data/x && cat /data/x", "x")
	t.delete(pod)
}

// stranger: users who may create pods can write any FlexVolume into them. The policy
// denies it, and where there is none, the daemon.
func stranger(t *T) {
	v := t.volume(nostage(), "data")
	// The PersistentVolume is there, and names another volume.
	thief := *v
	thief.inline = true
	thief.spec.Options = map[string]string{"volumeHandle": "of-another-user"}
	// There is none of that name.
	unknown := *v
	unknown.inline = true
	unknown.name = "data"
	if minor().Has(distribution.AdmissionPolicies()) {
		t.wantDenied(t.newPod("liar", thief.at("/data")), thief.flex)
		t.openPolicy()
		t.wait("pods without the policy", func() error { return t.dryRun(t.newPod("liar", thief.at("/data"))) })
	}
	liar := t.create(t.newPod("liar", thief.at("/data")))
	inliner := t.create(t.newPod("inliner", unknown.at("/data")))
	t.waitEvent(liar, "other options or another fsType than PersistentVolume")
	t.waitEvent(inliner, "no PersistentVolume of that name")
	t.delete(liar, inliner)
	t.wantCalls(v, map[string]int{"NodePublishVolume": 0})
}

// dryRun tries to create a pod, and keeps none.
func (t *T) dryRun(pod *corev1.Pod) error {
	_, err := t.client.CoreV1().Pods(t.Namespace).Create(t.ctx(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// wantDenied wants that the policy of install/policy/pods.yaml denies a pod.
func (t *T) wantDenied(pod *corev1.Pod, driver string) {
	t.Helper()
	if err := t.dryRun(pod); err == nil || !strings.Contains(err.Error(), "'flex2csi-pods'") || !strings.Contains(err.Error(), "of driver "+driver) {
		t.Errorf("an inline volume of %s: %v, want that flex2csi-pods denies it", driver, err)
	}
}

// openPolicy has the policy for pods deny nothing until the scenario is over.
func (t *T) openPolicy() {
	t.Helper()
	actions := func(list string) error {
		_, err := t.kubectl("patch", "validatingadmissionpolicybinding", "flex2csi-pods", "--type=merge", "-p", `{"spec":{"validationActions":[`+list+`]}}`)
		return err
	}
	t.must(actions(`"Audit"`))
	t.after = append(t.after, func() { t.check(actions(`"Deny", "Audit"`)) })
}

func (t *T) apply(dir string) error {
	out, err := t.kubectl("apply", "-k", dir)
	return withText(err, out)
}

// waitEvent waits until a pod's events say something.
func (t *T) waitEvent(pod *corev1.Pod, text string) {
	t.Helper()
	t.wait("event of pod "+pod.Name, func() error {
		if events := t.eventsOf(pod.Name); !strings.Contains(events, text) {
			return fmt.Errorf("%q is not among%s", text, events)
		}
		return nil
	})
}

// csiDriverObject changes the object of a driver of which no other scenario looks
// at that.
func csiDriverObject(t *T) {
	d := nostage()
	v := t.volume(d, "data", option("podNamespace", t.Namespace))
	t.changeCSIDriver(d, `{"spec":{"fsGroupPolicy":"None"}}`)
	t.after = append(t.after, func() {
		t.changeCSIDriver(d, `{"spec":{"fsGroupPolicy":"File","podInfoOnMount":true}}`)
	})
	t.eventually("fsGroupPolicy None", func(name string) error {
		return t.groupOf(v, name, "0")
	})
	t.changeCSIDriver(d, `{"spec":{"fsGroupPolicy":"File","podInfoOnMount":false}}`)
	pod := t.create(t.newPod("no-namespace", v.at("/data")))
	t.waitEvent(pod, "the volume is for pods of namespace")
	t.changeCSIDriver(d, `{"spec":{"podInfoOnMount":true}}`)
	t.waitReady(pod)
	t.delete(pod)
	t.must(t.groupOf(v, "with-group", "2000"))
}

// groupOf starts a pod with an fsGroup and says whether the volume has the group
// that it is to have.
func (t *T) groupOf(v *volume, name, want string) error {
	t.Helper()
	pod := t.start(name, v.at("/data"), as(0, 2000))
	got := t.sh(pod, "stat -c %g /data")
	t.delete(pod)
	if got != want {
		return fmt.Errorf("in pod %s the volume has the group %s, want %s", name, got, want)
	}
	return nil
}

// eventually tries with another pod each time: what is watched is known a moment
// after it is changed.
func (t *T) eventually(what string, try func(name string) error) {
	t.Helper()
	n := 0
	t.wait(what, func() error {
		n++
		return try(fmt.Sprintf("try-%d", n))
	})
}

func (t *T) changeCSIDriver(d driver, patch string) {
	t.Helper()
	drivers := t.client.StorageV1().CSIDrivers()
	const mutable = 29 // fsGroupPolicy and podInfoOnMount, pkg/apis/storage/validation
	if minor() >= mutable {
		_, err := drivers.Patch(t.ctx(), d.csi, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		t.must(err)
		return
	}
	o, err := drivers.Get(t.ctx(), d.csi, metav1.GetOptions{})
	t.must(err)
	o.ResourceVersion, o.UID = "", ""
	t.must(json.Unmarshal([]byte(patch), o))
	t.must(drivers.Delete(t.ctx(), d.csi, metav1.DeleteOptions{}))
	_, err = drivers.Create(t.ctx(), o, metav1.CreateOptions{})
	t.must(err)
}
