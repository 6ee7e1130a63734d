package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/test/csidriver"
	"github.com/flex2csi/flex2csi/test/csidriver/calls"
	"github.com/flex2csi/flex2csi/test/node"
)

// settling is how long the last things may take to go after the last pod and
// claim: the kubelet looks for pod directories once in a while, and a detach goes
// on without its pod. The kubelet of 1.24 waits for the volumes of a pod that was deleted
// by force for two minutes and three seconds (podAttachAndMountTimeout) before it unmounts
// them.
const settling = 3 * time.Minute

// wantNothingLeft fails the scenario for all that is left of it.
func (t *T) wantNothingLeft() {
	t.Helper()
	var left []string
	err := retry(min(settling, t.patience), func() error {
		left = t.left()
		if len(left) > 0 {
			return errors.New(strings.Join(left, "\n"))
		}
		return nil
	})
	if err != nil {
		t.Errorf("left over: %s", strings.Join(left, "\n\t"))
	}
}

// left names all that is left of the scenario.
func (t *T) left() []string {
	var left []string
	for _, look := range []func() ([]string, error){
		t.leftMounts, t.leftLoops, t.leftPodDirs, t.leftAttachments, t.leftRecords, t.leftInStorage, t.leftCalls,
	} {
		found, err := look()
		if err != nil {
			found = append(found, err.Error())
		}
		left = append(left, found...)
	}
	return left
}

// marks are parts of paths that only this scenario has: its pods, the device mount
// paths of its volumes, and where they are staged.
func (t *T) marks() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var marks []string
	for uid := range t.pods {
		marks = append(marks, "/pods/"+string(uid))
	}
	for _, v := range t.volumes {
		sum := sha256.Sum256([]byte(v.handle)) // as the kubelet's CSI plugin has it
		marks = append(marks, "/mounts/"+v.name, hex.EncodeToString(sum[:]), "/"+path.Base(v.handle)+".img")
	}
	return marks
}

func (t *T) ours(text string) bool {
	return slices.ContainsFunc(t.marks(), func(mark string) bool { return strings.Contains(text, mark) })
}

func (t *T) leftMounts() ([]string, error) {
	mounts, err := mountinfo.GetMounts(nil)
	var left []string
	for _, m := range mounts {
		if t.ours(m.Mountpoint) || t.ours(m.Root) {
			left = append(left, fmt.Sprintf("mount of %s%s (%s) on %s", m.Source, m.Root, m.FSType, m.Mountpoint))
		}
	}
	return left, err
}

func (t *T) leftLoops() ([]string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil || !slices.ContainsFunc(files, t.backsOurs) {
		return nil, err
	}
	// Another node on this machine has volumes of the same names. All files show which
	// are of this node.
	things, err := node.Look()
	return slices.DeleteFunc(things, func(what string) bool {
		return !strings.HasPrefix(what, "a loop device ") || !t.ours(what)
	}), err
}

func (t *T) backsOurs(file string) bool {
	backing, err := os.ReadFile(file) // it may be gone by now
	return err == nil && t.ours(strings.TrimSpace(string(backing)))
}

func (t *T) leftPodDirs() ([]string, error) {
	dirs, err := filepath.Glob("/var/lib/kubelet/pods/*")
	return slices.DeleteFunc(dirs, func(dir string) bool { return !t.ours(dir+"/") && !t.ours(dir) }), err
}

func (t *T) leftAttachments() ([]string, error) {
	list, err := t.client.StorageV1().VolumeAttachments().List(t.ctx(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var left []string
	for i := range list.Items {
		if a := &list.Items[i]; slices.ContainsFunc(t.volumes, func(v *volume) bool { return v.isOf(a) }) {
			left = append(left, "VolumeAttachment "+a.Name)
		}
	}
	return left, nil
}

// isOf says whether a VolumeAttachment is of the volume.
func (v *volume) isOf(a *storagev1.VolumeAttachment) bool {
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		return *name == v.name
	}
	inline := a.Spec.Source.InlineVolumeSpec
	return inline != nil && inline.CSI != nil && inline.CSI.VolumeHandle == v.handle && inline.CSI.Driver == v.csi
}

// status is what flex2csi status -o json says on the node.
func (c *cluster) status() (*bridgestatus.BridgeStatus, error) {
	text, err := c.flex2csi("status", "-o", "json")
	if err != nil {
		return nil, err
	}
	s := &bridgestatus.BridgeStatus{}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		return nil, fmt.Errorf("flex2csi status: %w: %s", err, text)
	}
	return s, nil
}

func (t *T) leftRecords() ([]string, error) {
	s, err := t.status()
	if err != nil {
		return nil, err
	}
	var left []string
	for i := range s.Volumes {
		r := &s.Volumes[i]
		if slices.ContainsFunc(t.volumes, func(v *volume) bool { return v.handle == r.VolumeHandle }) {
			left = append(left, fmt.Sprintf("record of %s, %s %s", r.VolumeHandle, r.Phase, r.LastError))
		}
	}
	for _, u := range s.PendingUnmounts {
		if t.ours(u.Dir) {
			left = append(left, "pending unmount of "+u.Dir)
		}
	}
	return left, nil
}

// leftInStorage is what the CSI drivers believe to be in use.
func (t *T) leftInStorage() ([]string, error) {
	var left []string
	for _, v := range t.bridged() {
		if v.driver == gce() {
			continue // it keeps no books that outlive it
		}
		views, err := csidriver.Inspect(v.storage())
		if err != nil {
			return left, err
		}
		if view, ok := views[v.handle]; ok && !view.Idle() {
			left = append(left, fmt.Sprintf("the driver has %s: attached to %v, on nodes %v", v.handle, view.AttachedTo, view.Nodes))
		}
	}
	return left, nil
}

// bridged are the volumes of CSI drivers.
func (t *T) bridged() []*volume {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.volumes), func(v *volume) bool { return v.csi == "" })
}

// leftCalls is what the CSI drivers were called for and never for its reverse.
func (t *T) leftCalls() ([]string, error) {
	var left []string
	for _, v := range t.bridged() {
		list, err := v.calls()
		if err != nil {
			return left, err
		}
		for _, l := range calls.Leftovers(list) {
			left = append(left, v.csi+" was never called for the reverse of "+l)
		}
	}
	return left, nil
}

// calls are those of node and controller service for one volume, in the order in
// which they came.
func (v *volume) calls() ([]calls.Call, error) {
	var all []calls.Call
	for _, service := range []string{"node", "controller"} {
		list, err := calls.Read(v.storage() + "." + service + ".calls")
		if err != nil && (!errors.Is(err, os.ErrNotExist) || service == "node") {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(list, func(c calls.Call) bool { return c.Volume != v.handle })...)
	}
	slices.SortFunc(all, func(a, b calls.Call) int { return a.Start.Compare(b.Start) })
	return all, nil
}

// count says how often the driver did something for the volume.
func (v *volume) count(method string) (int, error) {
	list, err := v.calls()
	n := 0
	for i := range list {
		if list[i].Method == method && list[i].Done() {
			n++
		}
	}
	return n, err
}
