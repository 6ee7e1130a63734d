package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// migrateJobs are migrations in the cluster of as many volumes as a cluster has.
func migrateJobs() []scenario {
	return []scenario{
		{"migrate-job-2000", "the Job of install/migrate, as it is but for --pause, migrates 2,000 volumes (200 on all releases but one), ten of them under pods, within its limits", migrateJobMany},
	}
}

// jobPatience is how long the Job may take.
const jobPatience = 25 * time.Minute

func migrateJobMany(t *T) {
	n, began := t.number("E2E_JOB", 2000), time.Now()
	under, pods := t.underPods(10, 2)
	t.claimsAlone(n - len(under))
	t.waitAll(len(pods))
	t.waitTold()
	was := t.boundClaims(n)
	t.note("%d claims after %.0f s", n, time.Since(began).Seconds())

	t.migrating.Lock()
	defer t.migrating.Unlock()
	t.Cleanup(t.deleteJournal)
	asked, began := t.jobRequests(), time.Now()
	t.startJob("--pause=1m")
	var used footprint
	stop := t.every(500*time.Millisecond, func(context.Context) { used.look(t) })
	t.waitJob(jobPatience, 0)
	stop()
	took := time.Since(began)
	t.note("the Job took %.0f s for %d volumes, with %.1f requests each; at most %d MiB resident, and %d MiB charged of %d MiB",
		took.Seconds(), n, float64(t.jobRequests()-asked)/float64(n), used.resident/mebi, used.charged/mebi, used.limit/mebi)

	t.wantWithin(&used)
	t.wantMigrated(was)
	for i, v := range under {
		pod := pods[i*len(pods)/len(under)]
		t.wantSh(pod, "cat /"+v.name+"/who", v.name)
		t.wantMounts(v, pod, true, true)
	}
}

// underPods makes volumes of some pods, in which each volume has its name. They are the first by
// name, so that the Job has the others meanwhile.
func (t *T) underPods(n, inPods int) (volumes []*volume, pods []*corev1.Pod) {
	t.Helper()
	for i := range inPods {
		pod := t.newPod("pod-" + strconv.Itoa(i))
		for j := range n / inPods {
			v := t.volume(share(), fmt.Sprintf("%d-%d", i, j))
			v.at("/" + v.name)(pod)
			pod.Spec.Containers[0].Command[2] = fmt.Sprintf("echo %[1]s > /%[1]s/who; ", v.name) + pod.Spec.Containers[0].Command[2]
			volumes = append(volumes, v)
		}
		pods = append(pods, t.create(pod))
	}
	return volumes, pods
}

// claimsAlone makes claims that no pod has, and PersistentVolumes without anything in the storage
// system. There are too many to look after each of them as after the others.
func (t *T) claimsAlone(n int) {
	t.Helper()
	name := func(i int) string { return "alone-" + strconv.Itoa(i) }
	t.Cleanup(func() {
		claims, volumes := t.client.CoreV1().PersistentVolumeClaims(t.Namespace), t.client.CoreV1().PersistentVolumes()
		t.check(sideBySide(n, func(i int) error {
			name, now := t.describe(disk(), name(i)).name, metav1.DeleteOptions{}
			return errors.Join(ignoreNotFound(claims.Delete(t.ctx(), name, now)), ignoreNotFound(volumes.Delete(t.ctx(), name, now)))
		}))
	})
	t.must(sideBySide(n, func(i int) error { return t.tryCreateClaim(t.describe(disk(), name(i))) }))
}

// sideBySide does something n times, with as many requests at a time as the API server can take
// next to all else.
func sideBySide(n int, do func(i int) error) error {
	const width = 8
	errs := make([]error, n)
	var all sync.WaitGroup
	for first := range width {
		all.Go(func() {
			for i := first; i < n; i += width {
				errs[i] = do(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// boundClaims waits until n claims are Bound, and returns their UIDs.
func (t *T) boundClaims(n int) map[string]types.UID {
	t.Helper()
	var all map[string]types.UID
	t.must(retry(5*t.patience, func() error {
		time.Sleep(time.Second) // a list of them all is no trifle
		list, err := t.client.CoreV1().PersistentVolumeClaims(t.Namespace).List(t.ctx(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		all = map[string]types.UID{}
		for i := range list.Items {
			if c := &list.Items[i]; c.Status.Phase == corev1.ClaimBound {
				all[c.Name] = c.UID
			}
		}
		if len(all) != n {
			return fmt.Errorf("of %d claims %d are Bound", n, len(all))
		}
		return nil
	}))
	return all
}

// wantMigrated wants all claims to be those that they were, and Bound to CSI volumes.
func (t *T) wantMigrated(was map[string]types.UID) {
	t.Helper()
	is := t.boundClaims(len(was))
	list, err := t.client.CoreV1().PersistentVolumes().List(t.ctx(), metav1.ListOptions{})
	t.must(err)
	migrated := 0
	for i := range list.Items {
		pv := &list.Items[i]
		claim := pv.Spec.ClaimRef
		if claim == nil || claim.Namespace != t.Namespace {
			continue
		}
		if pv.Spec.CSI != nil && pv.Spec.CSI.VolumeHandle == pv.Name && pv.Status.Phase == corev1.VolumeBound && claim.UID == was[pv.Name] && claim.UID == is[pv.Name] {
			migrated++
		} else {
			t.Errorf("PersistentVolume %s of claim %s (%s, was %s) is %s: %+v", pv.Name, claim.UID, is[pv.Name], was[pv.Name], pv.Status.Phase, pv.Spec.PersistentVolumeSource)
		}
	}
	if migrated != len(was) {
		t.Errorf("%d volumes were migrated, want %d", migrated, len(was))
	}
}

// A footprint is the memory of the containers of a Job, in bytes.
type footprint struct {
	// resident is the most that a process had, charged the most that the kernel held against
	// the limit: the page cache as well, which it drops where there is not enough.
	resident, charged, limit int
}

// look looks at what runs now. The kernel keeps the peaks.
func (f *footprint) look(t *T) {
	for _, pod := range t.jobPods() {
		for _, command := range []string{"resume", "apply"} {
			pids, _ := processes(&pod, command)
			for _, pid := range pids { // it may end at any time
				f.resident = max(f.resident, highWater(pid))
				f.charged = max(f.charged, groupMemory(pid, pod.UID, "memory.max_usage_in_bytes", "memory.peak"))
				f.limit = max(f.limit, groupMemory(pid, pod.UID, "memory.limit_in_bytes", "memory.max"))
			}
		}
	}
}

// highWater is the most that was resident of a process, in bytes.
func highWater(pid int) int {
	text, _ := fileText(fmt.Sprintf("/proc/%d/status", pid))
	_, value, _ := strings.Cut(text, "VmHWM:")
	kib := 0
	_, _ = fmt.Sscan(value, &kib)
	return kib << 10
}

// groupMemory is a figure of the control group of a process of a pod. Its files have one name in version 1
// and another one in version 2.
func groupMemory(pid int, pod types.UID, v1, v2 string) (bytes int) {
	groups, _ := fileText(fmt.Sprintf("/proc/%d/cgroup", pid))
	for line := range strings.Lines(groups) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		file := ""
		switch {
		case len(part) < 3 || !strings.Contains(part[2], "pod"+string(pod)):
			continue // of one that has just ended it is the root
		case slices.Contains(strings.Split(part[1], ","), "memory"):
			file = filepath.Join("/sys/fs/cgroup/memory", part[2], v1)
		case part[1] == "":
			file = filepath.Join("/sys/fs/cgroup", part[2], v2)
		}
		text, err := fileText(file)
		if err == nil {
			_, _ = fmt.Sscan(text, &bytes)
		}
	}
	return bytes
}

// wantWithin wants one pod to have done it all, with its limit in force, and room below that.
func (t *T) wantWithin(used *footprint) {
	t.Helper()
	pods := t.jobPods()
	if len(pods) != 1 || pods[0].Status.Phase != corev1.PodSucceeded || restarts(&pods[0], "apply") > 0 {
		t.Errorf("the Job had %d pods: %+v", len(pods), pods)
		return
	}
	limit := int(pods[0].Spec.Containers[0].Resources.Limits.Memory().Value())
	switch {
	case used.limit != limit || limit == 0:
		t.Errorf("the Job has the limit %d, and its processes had %d", limit, used.limit)
	case used.resident == 0:
		t.Error("the memory of the Job could never be seen")
	case used.resident > limit/2:
		t.Errorf("the Job had %d MiB of memory, want half of its limit, %d MiB", used.resident/mebi, limit/mebi)
	}
}

// jobRequests are those that the API server has answered.
func (t *T) jobRequests() int {
	t.Helper()
	text, err := os.ReadFile(t.node.AuditLog())
	t.must(err)
	return bytes.Count(text, []byte(`"username":"system:serviceaccount:flex2csi:flex2csi-migrate"`))
}

// deleteJournal deletes the records in the cluster, through which all commands of later scenarios
// would look.
func (t *T) deleteJournal() {
	t.Helper()
	t.check(t.client.CoreV1().ConfigMaps(installed).DeleteCollection(t.ctx(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "flex2csi.io/migration"}))
}
