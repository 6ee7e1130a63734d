package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/test/csidriver/calls"
	"github.com/flex2csi/flex2csi/test/node"
)

// A pod is what has to be the same when all is done.
type pod struct {
	uid, claim, volume, attachment string // UIDs
}

func (t *story) findPod() pod {
	if t.Failed != nil {
		return pod{}
	}
	p, err := t.look()
	if err != nil {
		t.Fail("look at the pod: %w", err)
	}
	return p
}

// look finds what the pod is made of.
func (t *story) look() (pod, error) {
	client := t.node.Client()
	p, err := client.CoreV1().Pods(namespace).Get(t.ctx, name, metav1.GetOptions{})
	if err != nil {
		return pod{}, err
	}
	if p.Status.Phase != corev1.PodRunning || p.Status.ContainerStatuses[0].RestartCount > 0 {
		return pod{}, fmt.Errorf("it is %s, with %d restarts", p.Status.Phase, p.Status.ContainerStatuses[0].RestartCount)
	}
	claim, err := client.CoreV1().PersistentVolumeClaims(namespace).Get(t.ctx, name, metav1.GetOptions{})
	if err != nil {
		return pod{}, err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return pod{}, fmt.Errorf("the claim is %s", claim.Status.Phase)
	}
	volume, err := client.CoreV1().PersistentVolumes().Get(t.ctx, name, metav1.GetOptions{})
	if err != nil {
		return pod{}, err
	}
	attachments, err := client.StorageV1().VolumeAttachments().List(t.ctx, metav1.ListOptions{})
	if err == nil && len(attachments.Items) != 1 {
		err = fmt.Errorf("there are %d VolumeAttachments", len(attachments.Items))
	}
	if err != nil {
		return pod{}, err
	}
	a := attachments.Items[0]
	return pod{string(p.UID), string(claim.UID), string(volume.UID), a.Name + " " + string(a.UID)}, nil
}

// volumeSource is what the PersistentVolume says of itself.
func (t *story) volumeSource() string {
	if t.Failed != nil {
		return ""
	}
	v, err := t.node.Client().CoreV1().PersistentVolumes().Get(t.ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fail("%w", err)
		return ""
	}
	if f := v.Spec.FlexVolume; f != nil {
		return f.Driver + ", uid " + string(v.UID)
	}
	return v.Spec.CSI.Driver + " " + v.Spec.CSI.VolumeHandle + ", uid " + string(v.UID)
}

// The pod's directories of the volume: that of the FlexVolume plugin, and that of
// the kubelet's CSI plugin.
func (p pod) flexDir() string {
	return node.KubeletDir + "/pods/" + p.uid + "/volumes/" + strings.ReplaceAll(flexDriver, "/", "~") + "/" + name
}

func (p pod) csiDir() string {
	return node.KubeletDir + "/pods/" + p.uid + "/volumes/kubernetes.io~csi/" + name + "/mount"
}

// mounted reports which of the two are mounted.
func (p pod) mounted() (flex, csi bool, err error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(node.KubeletDir + "/pods/" + p.uid))
	for _, m := range mounts {
		flex = flex || m.Mountpoint == p.flexDir()
		csi = csi || m.Mountpoint == p.csiDir()
	}
	return flex, csi, err
}

func mountNames(flex, csi bool) string {
	switch {
	case flex && csi:
		return "FlexVolume + CSI"
	case flex:
		return "FlexVolume"
	case csi:
		return "CSI"
	}
	return "none"
}

// wantMounts waits for what is mounted in the pod's directory.
func (t *story) wantMounts(flex, csi bool) {
	t.await("mounts", func(context.Context) error {
		isFlex, isCSI, err := t.pod.mounted()
		if err == nil && (isFlex != flex || isCSI != csi) {
			err = fmt.Errorf("mounted in the pod's directory: %s", mountNames(isFlex, isCSI))
		}
		return err
	})
	t.Verify(nil, "mounted", "%s", map[bool]string{true: "volumes/example.com~disk/counter  ", false: ""}[flex]+
		map[bool]string{true: "volumes/kubernetes.io~csi/counter", false: ""}[csi])
}

// lines reads what the pod has written, and how long the longest pause was.
func (p pod) lines() (count int, pause time.Duration, err error) {
	flex, _, err := p.mounted()
	if err != nil {
		return 0, 0, err
	}
	dir := p.csiDir()
	if flex {
		dir = p.flexDir()
	}
	f, err := os.Open(filepath.Join(dir, "lines"))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	var last float64
	for s := bufio.NewScanner(f); s.Scan(); {
		number, when, _ := strings.Cut(s.Text(), " ")
		seconds, err := strconv.ParseFloat(when, 64)
		if err != nil || number != strconv.Itoa(count+1) {
			return count, pause, fmt.Errorf("line %d is %q", count+1, s.Text())
		}
		if count > 0 {
			pause = max(pause, time.Duration((seconds-last)*float64(time.Second)))
		}
		count, last = count+1, seconds
	}
	return count, pause, nil
}

func (t *story) linesReach(want int) func(context.Context) error {
	return func(context.Context) error {
		n, _, err := t.pod.lines()
		if err == nil && n < want {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	}
}

// wantLines shows the lines, of which none may be missing.
func (t *story) wantLines(remark string) int {
	if t.Failed != nil {
		return 0
	}
	n, pause, err := t.pod.lines()
	t.Verify(err, "lines", "%d, none is missing; the longest time between two was %.2f s%s", n, pause.Seconds(), remark)
	return n
}

// bridgeTells wants the document of the node to have the pod.
func (t *story) bridgeTells(ctx context.Context) error {
	object, err := t.node.Client().CoreV1().ConfigMaps(bridgestatus.Namespace).Get(ctx, node.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	document, err := bridgestatus.DecodeNodeVolumes(object.Data[bridgestatus.Key])
	if err != nil {
		return err
	}
	if v := document.Find(csiDriver, "disk-1"); v == nil || !v.Has(t.pod.uid) || v.Uncertain {
		return errors.New("the bridge has not told of the pod yet")
	}
	return nil
}

// changing are the calls by which something is done.
func changing() []string {
	return []string{
		"ControllerPublishVolume", "NodeStageVolume", "NodePublishVolume",
		"NodeUnpublishVolume", "NodeUnstageVolume", "ControllerUnpublishVolume",
	}
}

// callsSoFar are those of both halves of the CSI driver that were carried out, in
// their order: the kubelet may ask for NodeUnstageVolume while the bridge is at
// NodeUnpublishVolume, and asks again when the driver refuses. The external-attacher
// may ask for the same again, when it has not heard yet of what it has done.
func callsSoFar() ([]calls.Call, error) {
	var all []calls.Call
	for _, half := range []string{"node", "controller"} {
		list, err := calls.Read("/var/lib/csidriver/" + csiDriver + "." + half + ".calls")
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(list, func(c calls.Call) bool { return !slices.Contains(changing(), c.Method) || !c.Done() })...)
	}
	slices.SortStableFunc(all, func(a, b calls.Call) int { return a.Start.Compare(b.Start) })
	var controller string
	return slices.DeleteFunc(all, func(c calls.Call) bool {
		again := c.Method == controller
		if strings.HasPrefix(c.Method, "Controller") {
			controller = c.Method
		}
		return again
	}), nil
}

// wasAsked waits for what the CSI driver is asked since the last time, and for
// nothing else.
func (t *story) wasAsked(want ...string) {
	var got []string
	t.await("the CSI driver", func(context.Context) error {
		list, err := callsSoFar()
		if err != nil {
			return err
		}
		got = nil
		for _, c := range list[min(t.asked, len(list)):] {
			got = append(got, c.Method)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("it was asked for %s, and not for %s", strings.Join(got, ", "), strings.Join(want, ", "))
		}
		return nil
	})
	t.asked += len(want)
	t.Verify(nil, "over CSI", "%s", strings.Join(got, " → "))
}
