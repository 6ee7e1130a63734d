package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/test/node"
)

// classScenarios are what becomes of StorageClasses.
func classScenarios() []scenario {
	return []scenario{{
		"migrate-classes",
		"what migrate classes prints, pasted: the API server takes the CSI classes, a StatefulSet names one while its pod writes on, and so does a claim that was Pending",
		migrateClasses,
	}}
}

// migrateClasses has a class without volumes, of a provisioner that a preset knows. No
// provisioner is on the node: new claims stay Pending.
func migrateClasses(t *T) {
	const set = "web"
	old := t.Namespace
	t.createClass(old, old+"-csi")
	v := t.volume(disk(), "0", func(v *volume) { v.name = fmt.Sprintf("%s-%s-0", t.Namespace, set) })
	s := t.createSet(set, []*volume{v}, func(s *appsv1.StatefulSet) { s.Spec.VolumeClaimTemplates[0].Spec.StorageClassName = &old })
	t.Cleanup(func() { t.check(t.endSet(set)) })
	t.wait("the StatefulSet", func() error { return t.setReady(set) })
	w := t.writersOf(s, []*volume{v})[0]
	waits := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "waits"}, Spec: *s.Spec.VolumeClaimTemplates[0].Spec.DeepCopy()}
	_, err := t.client.CoreV1().PersistentVolumeClaims(t.Namespace).Create(t.ctx(), waits, metav1.CreateOptions{})
	t.must(err)

	t.pasteClasses(old)
	t.wantClass(old, "oracle.com/oci")
	t.wantClass(old+"-csi", "blockvolume.csi.oraclecloud.com")
	t.wantClaimClass("waits", old+"-csi")
	t.wait("the StatefulSet", func() error { return t.setReady(set) })
	w.writes()
	w.note()
	t.scale(set, 2)
	next := fmt.Sprintf("%s-%s-1", t.Namespace, set)
	t.wantClaimClass(next, old+"-csi")
	t.scale(set, 1)
	t.wait("the end of the second pod", func() error { return t.setReady(set) })
	for _, name := range []string{"waits", next} {
		t.must(t.client.CoreV1().PersistentVolumeClaims(t.Namespace).Delete(t.ctx(), name, metav1.DeleteOptions{}))
	}

	t.pasteClasses(old, "--same-name")
	t.wantClass(old, "blockvolume.csi.oraclecloud.com")
	w.writes()
}

// createClass makes one that makes FlexVolumes, by its provisioner. It goes when the
// scenario ends, with those that the scenario makes of it.
func (t *T) createClass(name string, made ...string) {
	t.Helper()
	classes := t.client.StorageV1().StorageClasses()
	_, err := classes.Create(t.ctx(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "oracle.com/oci", Parameters: map[string]string{"fsType": "ext3"}, AllowVolumeExpansion: new(true),
	}, metav1.CreateOptions{})
	t.must(err)
	t.after = append(t.after, func() {
		for _, name := range append(made, name) {
			t.check(classes.Delete(t.ctx(), name, metav1.DeleteOptions{}))
		}
	})
}

// pasteClasses does all that migrate classes says about a class.
func (t *T) pasteClasses(class string, flags ...string) {
	t.Helper()
	program, err := filepath.Abs(os.Getenv("FLEX2CSI_BINARY"))
	t.must(err)
	ready := fmt.Sprintf("cd %s\nflex2csi() { %s \"$@\"; }\n", t.TempDir(), program)
	table := t.bash(ready + fmt.Sprintf("flex2csi migrate classes --kubeconfig %s %s %s\n", node.Kubeconfig, class, strings.Join(flags, " ")))
	commands := regexp.MustCompile(`(?m)(?:^      .*\n)+`).FindAllString(table, -1)
	if len(commands) == 0 {
		t.Fatalf("no commands in\n%s", table)
	}
	for _, c := range commands {
		t.bash(ready + "{\n" + c + "} || exit 1\n") // -e alone lets pass what fails before &&
	}
}

func (t *T) wantClass(name, provisioner string) {
	t.Helper()
	c, err := t.client.StorageV1().StorageClasses().Get(t.ctx(), name, metav1.GetOptions{})
	t.must(err)
	if c.Provisioner != provisioner || c.AllowVolumeExpansion == nil || !*c.AllowVolumeExpansion {
		t.Errorf("StorageClass %s: %+v", name, c)
	}
}

func (t *T) wantClaimClass(name, class string) {
	t.Helper()
	t.wait("claim "+name, func() error {
		c, err := t.client.CoreV1().PersistentVolumeClaims(t.Namespace).Get(t.ctx(), name, metav1.GetOptions{})
		if err == nil && (c.Spec.StorageClassName == nil || *c.Spec.StorageClassName != class) {
			err = fmt.Errorf("it does not name class %s: %+v", class, c.Spec)
		}
		return err
	})
}

func (t *T) scale(set string, replicas int) {
	t.Helper()
	out, err := t.kubectl("scale", "--namespace", t.Namespace, "statefulset/"+set, fmt.Sprintf("--replicas=%d", replicas))
	t.must(withText(err, out))
}
