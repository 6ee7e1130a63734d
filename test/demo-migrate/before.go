package main

import (
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/flex2csi/flex2csi/test/demo/screen"
	"github.com/flex2csi/flex2csi/test/node"
)

// The volume of docs/quickstart/counter-volume.yaml.
const (
	namespace  = "default"
	name       = "counter" // of volume, claim and pod
	flexDriver = "example.com/disk"
	csiDriver  = "disk.csi.example.com"
)

func (t *story) prologue() {
	t.started = time.Now()
	t.Line("\n %s  %s", t.Paint(screen.Bold, "flex2csi migrate"), "a FlexVolume becomes a CSI volume under a pod that writes to it")
}

// startNode starts a Kubernetes.
func (t *story) startNode() {
	t.Part("a node")
	t.Scene("A whole Kubernetes of one node, on this machine, in namespaces of its own.")
	start := time.Now()
	n, err := node.Start(t.ctx, node.Options{Kubelet: map[string]any{
		"syncFrequency": "10s", // a minute is its own, in which nothing else would be seen
	}})
	if err != nil {
		t.Fail("start the node: %w", err)
		return
	}
	t.node = n
	for _, image := range []string{"flex2csi", "csidriver", "csi-attacher", "busybox"} {
		if err == nil {
			err = n.Import(t.ctx, filepath.Join(t.images, image+".tar"))
		}
	}
	if err != nil {
		t.Fail("give the node its images: %w", err)
		return
	}
	t.Call("node up", "", "Ready", screen.Green, time.Since(start))
	version := t.quietly("kubectl", "version", "-o", "json")
	_, version, _ = strings.Cut(version, `"serverVersion"`)
	_, version, _ = strings.Cut(version, `"gitVersion": "`)
	version, _, _ = strings.Cut(version, `"`)
	t.Verify(nil, "Kubernetes", "%s: its own kubelet, scheduler and controllers", version)
}

// install installs all from the project's manifests.
func (t *story) install() {
	t.Part("a CSI driver, and the bridge")
	t.Scene("The vendor's CSI driver is there by now. Its disk disk-1 has been a FlexVolume all along.")
	t.command("kubectl", "apply", "-k", "docs/quickstart/csi-driver")
	t.Scene("flex2csi runs FlexVolumes on it. And it may tell the cluster what it has, for a migration.")
	t.command("kubectl", "apply", "-k", "docs/quickstart/flex2csi")
	t.command("kubectl", "apply", "-k", "install/migrate")
	for _, what := range []string{"csi ds/disk-node", "csi deployment/disk-controller", "flex2csi ds/flex2csi-node"} {
		where, object, _ := strings.Cut(what, " ")
		t.command("kubectl", "rollout", "status", "-n", where, object, "--timeout=3m")
	}
}

// count starts the pod.
func (t *story) count() {
	t.Part("a pod that would notice")
	t.Scene("It writes a line five times a second, each on the disk before the next one is begun, and ends at once if one cannot be written.")
	t.command("kubectl", "apply", "-f", "docs/quickstart/counter-volume.yaml", "-f", "docs/quickstart/counter.yaml")
	t.command("kubectl", "wait", "--for=condition=Ready", "pod/"+name, "--timeout=3m")
	t.pod = t.findPod()
	t.await("ten lines", t.linesReach(10))
	t.wantMounts(true, false)
	t.wantLines("")
	t.wasAsked("ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume")
	t.await("what the bridge tells", t.bridgeTells)
}

// plan shows the plan.
func (t *story) plan() {
	t.Part("flex2csi migrate plan")
	t.Scene("It reads only: what would this volume become, what stands in the way, what will be seen?")
	out := t.command("flex2csi", "migrate", "plan", "--claim", namespace+"/"+name)
	t.quote("", out)
	var err error
	if !strings.Contains(out, "1 volumes: 1 live") {
		err = errors.New("it should be live")
	}
	t.Verify(err, "live", "the volume can be replaced while the pod runs")
	t.report("bin/demo-migrate-plan.html", "migrate", "plan", "--claim", namespace+"/"+name)
	t.Verify(nil, "before", "PersistentVolume %s is a FlexVolume: %s", name, t.volumeSource())
}
