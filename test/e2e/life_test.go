package e2e

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lives are the kinds of volumes, each led through one life.
func lives() []scenario {
	bridged := func(d func() driver, options ...volumeOption) func(*T) {
		return func(t *T) { t.life(t.volume(d(), "data", options...)) }
	}
	return []scenario{
		{"life-disk", "PV, attach: false, by the external-attacher: written, read by the next pod", bridged(disk)},
		{"life-attached", "PV, attach: true, by kube-controller-manager", bridged(attached)},
		{"life-inline", "inline volume, attached by the external-attacher", bridged(disk, inline)},
		{"life-share", "PV of a driver without attaching", bridged(share)},
		{"life-share-inline", "inline volume without attaching", bridged(share, inline)},
		{"life-nostage", "PV of a driver without NodeStageVolume", bridged(nostage)},
		{"life-xfs", "PV with another filesystem", bridged(disk, fsType("xfs"), size(320*mebi))},
		{"life-two-drivers", "one FlexVolume driver for two CSI drivers: a pod with a volume of each", twoDrivers},
		{"life-local", "PV of the backend local: a disk image", func(t *T) { t.life(t.localVolume(local())) }},
		{"life-local-attached", "the same with attach: true", func(t *T) { t.life(t.localVolume(localAttached())) }},
		{"life-local-inline", "the same as an inline volume", func(t *T) { t.life(t.localVolume(local(), inline)) }},
		{"life-local-memory", "inline volume in memory: of its size, and gone with the pod", memory},
	}
}

// life: what a pod has written the next one reads, and each has it as a
// filesystem of its own.
func (t *T) life(v *volume) {
	first := t.start("first", v.at("/data"))
	t.sh(first, "grep -q ' /data ' /proc/mounts && echo from-first > /data/file && sync")
	t.wantMounted(v, first)
	t.delete(first)
	second := t.start("second", v.at("/data"))
	t.wantSh(second, "cat /data/file", "from-first")
	t.delete(second)
}

// bothVolumes makes a disk and a share of one FlexVolume driver.
func (t *T) bothVolumes() (disk, share *volume) {
	t.Helper()
	return t.volume(diskOfBoth(), "disk"), t.volume(shareOfBoth(), "share", fsType(""))
}

// twoDrivers: each volume is on its own CSI driver.
func twoDrivers(t *T) {
	disk, share := t.bothVolumes()
	for i, name := range []string{"first", "second"} {
		pod := t.start(name, disk.at("/disk"), share.at("/share"))
		for dir, v := range map[string]*volume{"/disk": disk, "/share": share} {
			t.wantMounted(v, pod)
			t.wantSh(pod, "cat "+dir+"/file 2>/dev/null | wc -l", strconv.Itoa(i))
			t.sh(pod, "echo from-"+name+" >> "+dir+"/file && sync")
			t.wantCalls(v, map[string]int{"NodePublishVolume": i + 1})
		}
		t.delete(pod)
	}
}

// wantMounted checks that the kubelet sees a mount at the pod's directory.
func (t *T) wantMounted(v *volume, pod *corev1.Pod) {
	t.Helper()
	text, err := fileText("/proc/self/mountinfo")
	t.must(err)
	if !strings.Contains(text, " "+v.dir(pod)+" ") {
		t.Errorf("nothing is mounted on %s", v.dir(pod))
	}
}

func local() driver         { return driver{flex: "example.com/local"} }
func localAttached() driver { return driver{flex: "example.com/localattached"} }

// localVolume makes one of the backend local: flexdriver makes the disk itself.
func (t *T) localVolume(d driver, options ...volumeOption) *volume {
	t.Helper()
	v := t.describe(d, "data", options...)
	delete(v.spec.Options, "volumeHandle")
	v.spec.Options["image"] = fmt.Sprintf("%s/%s/%s.img", localImages, t.Namespace, v.name)
	v.spec.Options["size"] = strconv.FormatInt(v.bytes, 10)
	t.keep(v)
	return v
}

// memory: a volume that is as large as it says, and has nothing of the last pod.
func memory(t *T) {
	v := t.describe(local(), "data", inline)
	v.spec.FSType = ""
	v.spec.Options = map[string]string{"medium": "memory", "size": "8Mi"}
	t.keep(v)
	pod := t.start("first", v.at("/data"))
	t.wantSh(pod, "df -k /data | awk 'END{print $2}'", "8192")
	t.sh(pod, "echo x > /data/file")
	t.delete(pod)
	pod = t.start("second", v.at("/data"))
	t.wantSh(pod, "ls -A /data", "")
}

// useScenarios are the ways in which pods use a volume.
func useScenarios() []scenario {
	return []scenario{
		{"two-pods", "two pods on one claim see each other's files; staged once", twoPods},
		{"read-only-claim", "a claim that is mounted read-only cannot be written to", readOnlyClaim},
		{"read-only-many", "a PV for many readers, two pods of them", readOnlyMany},
		{"fsgroup", "files belong to the pod's fsGroup, and no pod need be root", fsGroup},
		{"fsgroup-by-driver", "… given by a driver with VOLUME_MOUNT_GROUP", fsGroupByDriver},
		{"fsgroup-none", "… and left alone with fsGroupPolicy None", fsGroupNone},
		{"subpath", "containers with a subPath each, and one with all", subPaths},
		{"init-container", "what an init container writes the main one reads", initContainer},
		{"two-volumes", "two volumes of one pod, the same path in two containers", twoVolumes},
	}
}

func twoPods(t *T) {
	v := t.volume(disk(), "data")
	a, b := t.create(t.newPod("a", v.at("/data"))), t.create(t.newPod("b", v.at("/data")))
	t.waitReady(a)
	t.waitReady(b)
	t.sh(a, "echo from-a > /data/a")
	t.wantSh(b, "cat /data/a", "from-a")
	t.delete(a)
	t.sh(b, "echo from-b > /data/b && sync")
	t.delete(b)
	t.wantCalls(v, map[string]int{"NodeStageVolume": 1, "NodePublishVolume": 2})
}

// wantCalls checks how often the driver has done something. It writes a call down when that is
// done, a moment after its effect can be seen.
func (t *T) wantCalls(v *volume, want map[string]int) {
	t.Helper()
	for method, n := range want {
		got := 0
		_ = retry(2*time.Second, func() (err error) {
			if got, err = v.count(method); err == nil && got < n {
				err = errors.New("not yet")
			}
			return err
		})
		if got != n {
			t.Errorf("%s was done %d times for %s, want %d", method, got, v.handle, n)
		}
	}
}

func readOnlyClaim(t *T) {
	v := t.volume(disk(), "data")
	writer := t.start("writer", v.at("/data"))
	t.sh(writer, "echo kept > /data/file && sync")
	t.delete(writer)
	reader := t.start("reader", v.at("/data"), readOnly)
	t.wantSh(reader, "cat /data/file", "kept")
	if out, err := t.trySh(reader, "echo more >> /data/file"); err == nil || !strings.Contains(err.Error(), "Read-only") {
		t.Errorf("writing to a read-only volume: %v, %q", err, out)
	}
	t.delete(reader)
}

func readOnlyMany(t *T) {
	v := t.volume(share(), "data", func(v *volume) {
		v.modes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany, corev1.ReadOnlyMany}
	})
	writer := t.start("writer", v.at("/data"))
	t.sh(writer, "echo kept > /data/file")
	readers := []*corev1.Pod{t.start("one", v.at("/data"), readOnly), t.start("two", v.at("/data"), readOnly)}
	for _, reader := range readers {
		t.wantSh(reader, "cat /data/file", "kept")
		if _, err := t.trySh(reader, "echo > /data/file"); err == nil {
			t.Errorf("pod %s could write", reader.Name)
		}
	}
	t.sh(writer, "echo more >> /data/file") // as before
	t.delete(append(readers, writer)...)
}

const group2000 = "stat -c %g /data; echo x > /data/file; stat -c %g /data/file"

func fsGroup(t *T) {
	v := t.volume(disk(), "data")
	pod := t.start("pod", v.at("/data"), as(1000, 2000))
	t.wantSh(pod, group2000, "2000\n2000")
	t.delete(pod)
	pod = t.start("other", v.at("/data"), as(1001, 2001))
	t.wantSh(pod, "stat -c %g /data /data/file; echo y >> /data/file", "2001\n2001")
	t.delete(pod)
}

func fsGroupByDriver(t *T) {
	v := t.volume(group(), "data")
	pod := t.start("pod", v.at("/data"), as(1000, 2000))
	t.wantSh(pod, group2000, "2000\n2000")
	t.delete(pod)
}

func fsGroupNone(t *T) {
	v := t.volume(share(), "data")
	pod := t.start("pod", v.at("/data"), as(0, 2000))
	t.wantSh(pod, "stat -c %g /data", "0")
	t.delete(pod)
}

func subPaths(t *T) {
	v := t.volume(disk(), "data")
	all := t.start("all", v.at("/data"))
	t.sh(all, "mkdir -p /data/a && echo in-a > /data/a/file && echo one > /data/single")
	part := t.newPod("part", v.at("/data", subPath("a")))
	part.Spec.Containers = append(part.Spec.Containers, *part.Spec.Containers[0].DeepCopy(), *part.Spec.Containers[0].DeepCopy())
	part.Spec.Containers[1].Name, part.Spec.Containers[2].Name = "new", "file"
	part.Spec.Containers[1].VolumeMounts[0].SubPath = "made/by/kubelet"
	part.Spec.Containers[2].VolumeMounts[0].SubPath = "single"
	part = t.create(part)
	t.waitReady(part)
	t.wantSh(part, "cat /data/file", "in-a")
	out, err := t.exec(t.Namespace, part.Name, "new", "/bin/sh", "-c", "echo new > /data/file")
	t.must(withText(err, out))
	t.wantSh(all, "cat /data/made/by/kubelet/file", "new")
	out, err = t.exec(t.Namespace, part.Name, "file", "/bin/sh", "-c", "cat /data")
	t.must(withText(err, out))
	if out != "one\n" {
		t.Errorf("a file as subPath: %q", out)
	}
	t.delete(part, all)
}

func withText(err error, out string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", err, out)
}

func initContainer(t *T) {
	v := t.volume(disk(), "data")
	pod := t.newPod("pod")
	first := *pod.Spec.Containers[0].DeepCopy()
	first.Name, first.Command = "first", []string{"/bin/sh", "-c", "echo from-init > /data/file"}
	pod.Spec.InitContainers = []corev1.Container{first}
	v.at("/data")(pod)
	pod = t.create(pod)
	t.waitReady(pod)
	t.wantSh(pod, "cat /data/file", "from-init")
	t.delete(pod)
}

func twoVolumes(t *T) {
	a, b := t.volume(disk(), "a"), t.volume(share(), "b")
	pod := t.newPod("pod", a.at("/a"), b.at("/b"))
	pod.Spec.Containers = append(pod.Spec.Containers, *pod.Spec.Containers[0].DeepCopy())
	pod.Spec.Containers[1].Name = "second"
	pod = t.create(pod)
	t.waitReady(pod)
	t.sh(pod, "echo a > /a/file; echo b > /b/file")
	out, err := t.exec(t.Namespace, pod.Name, "second", "/bin/sh", "-c", "cat /a/file /b/file")
	t.must(withText(err, out))
	if out != "a\nb\n" {
		t.Errorf("the second container reads %q", out)
	}
	t.delete(pod)
}

// makeSecret makes a Secret that FlexVolumes of a driver may use.
func (t *T) makeSecret(name string, d driver, data map[string]string) {
	t.Helper()
	_, err := t.client.CoreV1().Secrets(t.Namespace).Create(t.ctx(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretType(d.flex), StringData: data,
	}, metav1.CreateOptions{})
	t.must(err)
}
