package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeScript is a vendor's driver on the node, where vendorScript in
// kube-controller-manager attaches the disks: it mounts the image of a CSI driver.
const nodeScript = `#!/bin/sh
image="%s/volumes/$(basename "$2").img"
case $1 in
init) echo '{"status":"Success","capabilities":{"attach":true}}' ;;
waitforattach) echo '{"status":"Success","device":"vendor"}' ;;
mountdevice)
	mkdir -p "$2" && { blkid "$image" || mkfs.ext4 -q "$image"; } >/dev/null 2>&1 && mount -o loop "$image" "$2" >/dev/null 2>&1 &&
		echo '{"status":"Success"}' || echo '{"status":"Failure"}' ;;
unmountdevice) umount "$2" >/dev/null 2>&1; echo '{"status":"Success"}' ;;
*) echo '{"status":"Not supported"}' ;;
esac
`

// An evening is docs/migrate-guide.md, and the cluster that it is about.
type evening struct {
	t    *T
	text string
	desk string
	// share is the driver that only mounts; disk the other one, in kube-controller-manager.
	share *oldDriver
	disk  *vendorDriver
	cache *volume
	// lines are how many a pod's volume had at the last look.
	lines map[string]int
}

// The pods of the document.
const apps, databases, caches = 10, 6, 4

func typeEvening(t *T) {
	e := t.evening()
	e.wantShop()
	e.toTheMiddle()
	e.back()
	e.toTheMiddle()

	e.claimForCache()
	e.typeChapter("9")
	e.wantShop()
	t.pasteClasses(t.Namespace, "--same-name")
	e.typeChapter("11")
	if out, err := t.kubectl("get", "namespace", installed); err == nil {
		t.Errorf("the bridge is not gone: %s", out)
	}
	e.wantShop()
	for _, report := range []string{"before", "plan", "status", "after"} {
		text, err := fileText(filepath.Join(e.desk, report+".html"))
		if t.check(err); !strings.Contains(text, "</html>") {
			t.Errorf("the report %s is not whole", report)
		}
	}
}

// evening makes the cluster of the document: old drivers, volumes and pods, and no
// flex2csi.
func (t *T) evening() *evening {
	t.Helper()
	text, err := os.ReadFile("../../" + guide)
	t.must(err)
	e := &evening{t: t, text: string(text), desk: t.desk(), lines: map[string]int{}}
	shares := 193
	if os.Getenv("SCENARIO") == "" { // together with all others
		shares = 43
	}
	out, err := t.inDaemon("uninstall")
	t.must(withText(err, out))
	t.Cleanup(func() {
		t.installAgain()
		out, err := t.kubectl("label", "nodes", "--all", "flex2csi-")
		t.check(withText(err, out))
	})
	for _, dir := range []string{env("E2E_INSTALL", manifests()), tells()} {
		out, err := t.kubectl("delete", "-k", dir, "--wait")
		t.must(withText(err, out))
	}
	e.share = t.oldDriver(share())
	e.oldDisks()
	t.createClass(t.Namespace)

	var workloads []any
	named := func(name string) volumeOption {
		return func(v *volume) { v.name, v.handle = name, name }
	}
	for i := range shares {
		v := t.volume(share(), "", named("share-"+strconv.Itoa(i)))
		if i < apps {
			workloads = append(workloads, t.ofShop("app-"+strconv.Itoa(i), 1, v, "/data/log"))
		}
	}
	e.cache = t.volume(share(), "", named("cache"), inline)
	workloads = append(workloads, t.ofShop("cache", caches, e.cache, "/data/log-$HOSTNAME"))
	var claims []*volume
	for i := range databases {
		claims = append(claims, t.volume(disk(), "", named(fmt.Sprintf("%s-db-%d", t.Namespace, i))))
	}
	t.Cleanup(func() {
		t.check(e.share.stop())
		t.endWorkloads()
	})
	out, err = t.kubectl("apply", "--namespace", t.Namespace, "-f", t.manifest("shop.yaml", workloads...))
	t.must(withText(err, out))
	t.createSet("db", claims, func(s *appsv1.StatefulSet) {
		s.Labels, s.Spec.Template.Labels["app"] = shop(), "shop"
		slowly(&corev1.Pod{Spec: s.Spec.Template.Spec})
		s.Spec.VolumeClaimTemplates[0].Spec.StorageClassName = &t.Namespace
	})
	t.must(os.Link(e.share.manifest(), filepath.Join(e.desk, "vendor.yaml")))
	return e
}

// shop is the label by which the document selects.
func shop() map[string]string { return map[string]string{"app": "shop"} }

// ofShop describes a Deployment of writers.
func (t *T) ofShop(name string, replicas int32, v *volume, log string) *appsv1.Deployment {
	d := t.newDeployment(name, replicas, v.at("/data"), writing(log), slowly)
	d.Labels, d.Spec.Template.Labels["app"] = shop(), "shop"
	return d
}

// slowly has a writer leave the machine's processors to others.
func slowly(pod *corev1.Pod) {
	command := pod.Spec.Containers[0].Command
	command[2] = strings.ReplaceAll(command[2], "sleep 0.2", "sleep 2")
}

// oldDisks installs the vendor's driver that attaches, on the node and in
// kube-controller-manager.
func (e *evening) oldDisks() {
	t := e.t
	t.Helper()
	e.disk = t.vendorDriver(disk())
	dir := filepath.Dir(e.disk.executable())
	t.must(os.MkdirAll(dir, 0o755))
	t.must(os.WriteFile(e.disk.executable(), []byte(e.onNode()), 0o755))
	t.Cleanup(func() { t.check(os.RemoveAll(dir)) })
}

// onNode is the kubelet's part of it.
func (e *evening) onNode() string { return fmt.Sprintf(nodeScript, e.disk.storage()) }

// wantDiskInPlace wants the kubelet to find it.
func (e *evening) wantDiskInPlace() {
	e.t.Helper()
	if script, err := fileText(e.disk.executable()); err != nil || script != e.onNode() {
		e.t.Fatalf("the driver that attaches is not in its place: %v", err)
	}
}

// typeChapter types the commands of a chapter.
func (e *evening) typeChapter(chapter string) {
	e.t.Helper()
	e.typeText(chapter, e.t.chapter(e.text, chapter+" "))
}

func (e *evening) typeText(what, text string) {
	t := e.t
	t.Helper()
	first, _, _ := strings.Cut(e.text, "\n## ")
	commands := strings.Replace(blocks(first), "NS=shop\n", "NS="+t.Namespace+"\n", 1) + blocks(text)
	if !tested() {
		commands = strings.ReplaceAll(commands, " migrate apply ", " migrate apply --accept=node ")
	}
	began := time.Now()
	t.migrating.Lock()
	defer t.migrating.Unlock()
	out := t.bashIn(e.desk, eveningPatience, commands)
	t.Logf("%s:\n%s", what, out)
	t.note("%s: %.0f s", what, time.Since(began).Seconds())
}

// eveningPatience is how long a chapter may take.
const eveningPatience = 15 * time.Minute

// toTheMiddle is what comes before the way back.
func (e *evening) toTheMiddle() {
	t := e.t
	t.Helper()
	e.typeChapter("1")
	e.typeChapter("2")
	e.share.wantReplaced()
	e.wantShop()
	e.wantRefused()
	e.typeChapter("3")
	t.must(e.disk.takeOut())
	e.typeChapter("5")
	e.wantShop()
	e.typeChapter("6")
	e.typeChapter("8")
	e.wantShop()
}

// back is the way back.
func (e *evening) back() {
	t := e.t
	t.Helper()
	before, after, ok := strings.Cut(t.chapter(e.text, "Back from the middle"), "\nGive the driver back to kube-controller-manager")
	if !ok {
		t.Fatalf("%s does not give the driver back", guide)
	}
	e.typeText("back", before)
	e.share.wantInPlace()
	e.wantDiskInPlace()
	t.must(e.disk.put())
	e.typeText("on the old drivers", after)
	e.wantShop()
}

// wantRefused: while the driver that attaches has volumes on the node, its place cannot be
// taken. The daemon that runs stays.
func (e *evening) wantRefused() {
	t := e.t
	t.Helper()
	file := filepath.Join(e.desk, "bridge", "config.yaml")
	config, err := os.ReadFile(file)
	t.must(err)
	t.must(os.WriteFile(file, append(config, "  - {flexDriver: example.com/disk, csiDriver: disk.csi.example.com}\n"...), 0o600))
	apply := func() {
		out, err := t.kubectl("apply", "-k", filepath.Join(e.desk, "bridge"))
		t.must(withText(err, out))
	}
	apply()
	t.wait("install to refuse", func() error {
		out, err := t.kubectl("logs", "--namespace", installed, "--selector", nodeComponent, "--container", "install", "--tail=-1")
		if err == nil && !strings.Contains(out, "which only it can detach") {
			err = errors.New(out)
		}
		return err
	})
	e.wantDiskInPlace()
	t.must(os.WriteFile(file, config, 0o600))
	apply()
	t.must(t.rolledOut(t.ctx(), installed))
	e.wantShop()
}

// claimForCache writes cache.yaml: the Deployment with a claim in place of the inline
// volume.
func (e *evening) claimForCache() {
	t := e.t
	t.Helper()
	v := *e.cache
	v.inline, v.native = false, true
	t.keep(&v)
	t.must(os.Link(t.manifest("cache.yaml", t.ofShop("cache", caches, &v, "/data/log-$HOSTNAME")), filepath.Join(e.desk, "cache.yaml")))
}

// wantShop wants all pods to be there, none restarted, and all lines of before.
func (e *evening) wantShop() {
	t := e.t
	t.Helper()
	var pods []corev1.Pod
	t.wait("the pods", func() error {
		list, err := t.client.CoreV1().Pods(t.Namespace).List(t.ctx(), metav1.ListOptions{LabelSelector: "app=shop"})
		if err != nil {
			return err
		}
		pods = list.Items
		if len(pods) != apps+databases+caches {
			return fmt.Errorf("%d pods", len(pods))
		}
		var errs []error
		for i := range pods {
			errs = append(errs, notReady(&pods[i]))
		}
		return errors.Join(errs...)
	})
	for i := range pods {
		pod := &pods[i]
		t.mu.Lock()
		t.pods[pod.UID] = pod.Name
		t.mu.Unlock()
		if restarts(pod, "main") > 0 {
			t.Errorf("pod %s: %s", pod.Name, terminations(pod))
		}
		name, log := pod.Labels["deployment"], "/data/log"
		if name == "cache" {
			name, log = pod.Name, "/data/log-"+pod.Name
		}
		if name == "" {
			name = pod.Name // of the StatefulSet
		}
		lines, _ := (&writer{t: t, pod: pod, log: log}).lines()
		if lines <= e.lines[name] {
			t.Errorf("pod %s: %d lines, after %d", pod.Name, lines, e.lines[name])
		}
		e.lines[name] = lines
	}
}
