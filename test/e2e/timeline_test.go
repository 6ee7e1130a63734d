package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/volstate"
)

// A timeline is what becomes of a volume, as cluster, node and CSI driver show it.
// It is kept in timeline.txt of the scenario's directory.
type timeline struct {
	t     *T
	v     *volume
	began time.Time

	seen map[string]string
	text strings.Builder
}

// glance is how often it looks.
const glance = 500 * time.Millisecond

// follow begins one, which ends with the scenario.
func (t *T) follow(v *volume) {
	t.Helper()
	l := &timeline{t: t, v: v, began: time.Now(), seen: map[string]string{}}
	ctx, stop := context.WithCancel(t.ctx())
	var looking sync.WaitGroup
	looking.Go(func() {
		for ctx.Err() == nil {
			l.look(ctx)
			time.Sleep(glance)
		}
	})
	t.after = append(t.after, func() {
		stop()
		looking.Wait()
		name := filepath.Join(t.dir, strings.TrimPrefix(t.Namespace, "e2e-"), v.name+".timeline.txt")
		t.check(writeFile(name, l.text.String()))
	})
}

func (l *timeline) say(what string) {
	fmt.Fprintf(&l.text, "%s %7.2f %s\n", time.Now().Format("15:04:05.000"), time.Since(l.began).Seconds(), what)
}

func (l *timeline) look(ctx context.Context) {
	now := map[string]string{}
	for _, look := range []func(context.Context, map[string]string) error{l.objects, l.node, l.mounts, l.calls, l.records} {
		if err := look(ctx, now); err != nil {
			now["error"] += err.Error() + " "
		}
	}
	both := maps.Clone(l.seen)
	maps.Copy(both, now)
	for _, key := range slices.Sorted(maps.Keys(both)) {
		was, had := l.seen[key]
		is, has := now[key]
		switch {
		case had && !has:
			l.say("- " + key + " (" + was + ")")
		case !had || was != is:
			l.say("+ " + key + " " + is)
		}
	}
	l.seen = now
}

func (l *timeline) objects(ctx context.Context, now map[string]string) error {
	if pv, err := l.t.client.CoreV1().PersistentVolumes().Get(ctx, l.v.name, metav1.GetOptions{}); err == nil {
		source := "flex"
		if pv.Spec.CSI != nil {
			source = "csi"
		}
		now["PersistentVolume"] = fmt.Sprintf("%s %s %v", source, pv.Status.Phase, pv.Finalizers)
	}
	if claim, err := l.t.client.CoreV1().PersistentVolumeClaims(l.t.Namespace).Get(ctx, l.v.name, metav1.GetOptions{}); err == nil {
		now["claim"] = string(claim.Status.Phase)
	}
	list, err := l.t.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		a := &list.Items[i]
		if !l.v.isOf(a) {
			continue
		}
		kind := "inline"
		if a.Spec.Source.PersistentVolumeName != nil {
			kind = "pv"
		}
		deleting := ""
		if a.DeletionTimestamp != nil {
			deleting = " being deleted"
		}
		now["VolumeAttachment "+string(a.UID[:8])+" "+a.Name[:12]] = fmt.Sprintf("%s attached=%v%s by=%s", kind, a.Status.Attached, deleting, a.Labels["flex2csi.io/attached-by"])
	}
	return nil
}

func (l *timeline) node(ctx context.Context, now map[string]string) error {
	list, err := l.t.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return err
	}
	s := list.Items[0].Status
	for _, a := range s.VolumesAttached {
		if l.ours(string(a.Name)) {
			now["volumesAttached "+string(a.Name)] = ""
		}
	}
	for _, name := range s.VolumesInUse {
		if l.ours(string(name)) {
			now["volumesInUse "+string(name)] = ""
		}
	}
	return nil
}

func (l *timeline) ours(name string) bool {
	return strings.HasSuffix(name, "^"+l.v.handle) || strings.HasSuffix(name, "/"+l.v.name)
}

func (l *timeline) mounts(_ context.Context, now map[string]string) error {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return err
	}
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(l.v.handle)))
	for _, m := range mounts {
		at := m.Mountpoint
		if strings.Contains(at, "/"+l.v.name) || strings.Contains(at, sum) {
			now["mount "+l.short(at)] = m.Source
		}
	}
	for _, pattern := range []string{
		"/var/lib/kubelet/plugins/kubernetes.io/csi/" + l.v.csi + "/" + sum + "/vol_data.json",
		"/var/lib/kubelet/pods/*/volumes/kubernetes.io~csi/" + l.v.name + "/vol_data.json",
		"/var/lib/kubelet/pods/*/volumes/*/" + l.v.name,
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, f := range found {
			now["file "+l.short(f)] = ""
		}
	}
	return nil
}

// short leaves away what is the same everywhere.
func (l *timeline) short(path string) string {
	path = strings.TrimPrefix(path, "/var/lib/kubelet/")
	path = strings.ReplaceAll(path, fmt.Sprintf("%x", sha256.Sum256([]byte(l.v.handle))), "HASH")
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	for uid, name := range l.t.pods {
		path = strings.ReplaceAll(path, string(uid), name)
	}
	return strings.ReplaceAll(path, l.v.name, "NAME")
}

func (l *timeline) calls(_ context.Context, now map[string]string) error {
	list, err := l.v.calls()
	if err != nil {
		return err
	}
	for i := range list {
		c := &list[i]
		now[fmt.Sprintf("call %02d %s %s", i, c.Method, l.short(c.Path))] = fmt.Sprintf("%s %s %s", c.Start.Format("05.000"), c.Code, c.Message)
	}
	return nil
}

// records is what the daemon has written down of the volume.
func (l *timeline) records(_ context.Context, now map[string]string) error {
	r, err := l.v.record()
	if err != nil || r == nil {
		return err
	}
	var pods []string
	for dir, target := range r.Targets {
		pods = append(pods, strings.Split(l.short(dir), "/")[1]+"="+string(target.Publish))
	}
	slices.Sort(pods)
	now["record"] = fmt.Sprintf("attach=%s by %s foreign=%v stage=%s pods=%v owner=%q %s", r.Attach, r.Attachment, r.Unmanaged, r.Stage, pods, r.Owner, r.LastError)
	return nil
}

// record is the daemon's record of the volume on the disk; nil if it has none.
func (v *volume) record() (*volstate.Record, error) {
	files, err := filepath.Glob("/var/lib/flex2csi/*.json")
	for _, file := range files {
		r := &volstate.Record{}
		text, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(text, r) == nil && r.Handle == v.handle {
			return r, nil
		} // else gone by now, or another volume's
	}
	return nil, err
}
