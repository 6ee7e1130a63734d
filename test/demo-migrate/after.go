package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apply migrates the volume, and shows what is seen.
func (t *story) apply() {
	t.Part("flex2csi migrate apply, and what is seen meanwhile")
	t.Scene("The pod goes on counting. The kubelet of this node checks its pods every ten seconds, and by default about once a minute: apply waits for that in the end.")
	if t.Failed != nil {
		return
	}
	// The node shares /tmp with the machine.
	dir, err := os.MkdirTemp("", "flex2csi-migration-")
	if err != nil {
		t.Fail("make a directory for the journal: %w", err)
		return
	}
	defer os.RemoveAll(dir)
	args := []string{"migrate", "apply", "--claim", namespace + "/" + name, "--yes", "--journal", dir}
	start := time.Now()
	lines, wait, err := t.flow("flex2csi", args...)
	if err == nil {
		t.watching(lines)
		for range lines { // if something went wrong, there are some left
		}
		err = wait()
	}
	t.Line("")
	t.ran("flex2csi", args, start, err)
	if err != nil {
		t.Fail("flex2csi migrate apply: %w", err)
		return
	}
	t.stays()
}

// stays: what should be the same is, and what should not is not.
func (t *story) stays() {
	now := t.findPod()
	var errs []error
	for what, same := range map[string]bool{
		"the pod": now.uid == t.pod.uid, "the claim": now.claim == t.pod.claim, "the VolumeAttachment": now.attachment == t.pod.attachment,
	} {
		if !same {
			errs = append(errs, errors.New(what+" is another one"))
		}
	}
	t.Verify(errors.Join(errs...), "the same", "the pod, with 0 restarts; its claim; the VolumeAttachment, which the control plane has adopted")
	var err error
	if now.volume == t.pod.volume {
		err = errors.New("it is the old one")
	}
	t.pod = now
	t.Verify(err, "replaced", "PersistentVolume %s is a CSI volume: %s", name, t.volumeSource())
	s := &t.saw
	if s.gone.IsZero() || s.back.IsZero() || s.tookOver.IsZero() {
		err = fmt.Errorf("something was not seen: %+v", *s)
	}
	t.Verify(err, "times", "no PersistentVolume for %d ms, the claim %s; the kubelet's CSI mount after %.0f s",
		s.back.Sub(s.gone).Milliseconds(), s.lostFor(), s.tookOver.Sub(s.gone).Seconds())
	t.wantMounts(true, true)
	t.wasAsked("NodeStageVolume", "NodePublishVolume")
	t.wantLines("")
	t.Scene("This is what Kubernetes says of the claim. It is not so: see above.")
	t.quote("", t.quietly("kubectl", "get", "events", "--field-selector", "type=Warning,involvedObject.kind=PersistentVolumeClaim", "-o", "jsonpath={range .items[*]}{.reason}: {.message}{\"\\n\"}{end}"))
	t.Scene("And this is what flex2csi says.")
	t.quote("", t.command("flex2csi", "migrate", "status"))
	t.report("bin/demo-migrate-status.html", "migrate", "status")
}

// nextPod shows that the next pod has nothing to do with the bridge.
func (t *story) nextPod() {
	t.Part("the next pod")
	t.Scene("The pod ends, and with it the old mount. The next one reads all lines before it goes on.")
	t.command("kubectl", "delete", "pod", name)
	written := t.pod
	t.wasAsked("NodeUnpublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume")
	t.command("kubectl", "apply", "-f", "docs/quickstart/counter.yaml")
	t.command("kubectl", "wait", "--for=condition=Ready", "pod/"+name, "--timeout=3m")
	t.pod = t.findPod()
	t.wantMounts(false, true)
	t.wasAsked("ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume")
	said := strings.TrimSpace(t.quietly("kubectl", "logs", name))
	var err error
	if !strings.HasPrefix(said, "read ") || !strings.HasSuffix(said, " lines, none is missing") || t.pod.uid == written.uid {
		err = fmt.Errorf("the pod says %q", said)
	}
	t.Verify(err, "it says", "%s", said)
	t.await("more lines", t.linesReach(t.wantLines(", which is while there was no pod")+10))
}

// farewell removes the bridge.
func (t *story) farewell() {
	t.Part("flex2csi migrate finish")
	t.Scene("Are the FlexVolume driver and the bridge still needed?")
	t.quote("", t.command("flex2csi", "migrate", "finish"))
	t.Scene("No. Uninstall them, while the pod runs.")
	t.command("kubectl", "-n", "flex2csi", "exec", "ds/flex2csi-node", "-c", "serve", "--", "/flex2csi", "uninstall")
	t.command("kubectl", "delete", "-k", "docs/quickstart/flex2csi")
	t.command("kubectl", "delete", "-k", "install/migrate")
	before, _, err := t.pod.lines()
	if err != nil {
		t.Fail("read the lines: %w", err)
	}
	t.await("more lines", t.linesReach(before+10))
	t.wantLines(": it goes on")
}

// nothingLeft ends the pod, and looks for what is left.
func (t *story) nothingLeft() {
	t.Part("what is left")
	t.command("kubectl", "delete", "pod/"+name, "pvc/"+name, "pv/"+name)
	t.wasAsked("NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume")
	t.await("VolumeAttachments", func(ctx context.Context) error {
		list, err := t.node.Client().StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left", len(list.Items))
		}
		return err
	})
	t.Verify(nil, "attachments", "none")
	t.command("kubectl", "delete", "-k", "docs/quickstart/csi-driver")
	t.await("namespaces", func(ctx context.Context) error {
		for _, name := range []string{"flex2csi", "csi", "flex2csi-nodes"} {
			if _, err := t.node.Client().CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("namespace %s is still there (%w)", name, err)
			}
		}
		return nil
	})
	t.await("the node", func(context.Context) error {
		left, err := t.node.Leaks()
		if err == nil && len(left) > 0 {
			err = errors.New(strings.Join(left, "; "))
		}
		return err
	})
	t.Verify(nil, "on the node", "no mount, no loop device, no directory of a pod")
}
