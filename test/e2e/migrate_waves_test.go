package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/migrate"
)

// migrateWaves is one in small steps, and one in the cluster.
func migrateWaves() []scenario {
	return []scenario{
		{"migrate-waves", "four volumes of pods on a node, one at a time; two that fail stop apply; a Job finishes them and the rest, though its pod is killed", migrateInWaves},
	}
}

func migrateInWaves(t *T) {
	var volumes []*volume
	var writers []*writer
	var was []*corev1.PersistentVolume
	for i := range 4 {
		v := t.volume(share(), strconv.Itoa(i))
		volumes, writers, was = append(volumes, v), append(writers, t.writer("pod-"+strconv.Itoa(i), v)), append(was, t.persistentVolume(v))
	}
	t.waitTold()
	// The plan has all of them, and two fail when it is their turn.
	fail := func() {
		for _, v := range volumes[1:3] {
			t.finalizers(v, `["kubernetes.io/pv-protection","example.com/keep"]`)
		}
	}
	underWay, most := 0, 0
	results, err := t.migrateAt(func(_ *migration, line string) {
		switch {
		case strings.HasSuffix(line, " begun"):
			if underWay++; strings.Contains(line, volumes[0].name+" ") {
				fail()
			}
		case strings.Contains(line, " migrated") || strings.Contains(line, " NOT FINISHED"):
			underWay--
		}
		most = max(most, underWay)
	}, "apply", "--yes", "--namespace", t.Namespace, "--width", "4", "--max-per-node", "1", "--max-failures", "2")
	if err == nil || most != 1 || len(results) != 4 {
		t.Fatalf("%d at a time, %+v: %v", most, results, err)
	}
	for i, want := range []migrate.Outcome{migrate.Done, migrate.Unfinished, migrate.Unfinished, migrate.Left} {
		if results[i].Outcome != want {
			t.Errorf("%+v, want %s", results[i], want)
		}
	}
	if !strings.HasSuffix(results[3].Why, "(--max-failures 2)") {
		t.Errorf("%s: %s", results[3].Name, results[3].Why)
	}
	for _, v := range volumes[1:3] {
		t.finalizers(v, `["kubernetes.io/pv-protection"]`)
	}
	t.migrateAsJob()
	for i, v := range volumes {
		t.wantCSI(v, was[i])
		t.wantMounts(v, writers[i].pod, true, true)
		writers[i].writes()
		writers[i].note()
		if events := t.eventsOf(v.name); !strings.Contains(events, "Normal VolumeMigrationStarted") || !strings.Contains(events, "Normal VolumeMigrated") {
			t.Errorf("events of the claim: %s", events)
		}
	}
}

func (t *T) finalizers(v *volume, all string) {
	t.Helper()
	_, err := t.client.CoreV1().PersistentVolumes().Patch(t.ctx(), v.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":`+all+`}}`), metav1.PatchOptions{})
	t.check(err)
}

// migrateAsJob runs what install/migrate/job.yaml does, for the namespace of the scenario, and
// kills its first pod.
func (t *T) migrateAsJob() {
	t.Helper()
	t.migrating.Lock()
	defer t.migrating.Unlock()
	const dir, driver, namespace, name = "../../install/migrate/", "            - --driver=example.com/disk\n", "flex2csi", "flex2csi-migrate"
	text, err := os.ReadFile(dir + "job.yaml")
	t.must(err)
	args := "            - --namespace=" + t.Namespace + "\n"
	if !tested() {
		args += "            - --accept=node\n"
	}
	before, after, ok := strings.Cut(string(text), driver)
	if !ok {
		t.Fatalf("job.yaml does not have %q", driver)
	}
	file := filepath.Join(t.TempDir(), "job.yaml")
	t.must(os.WriteFile(file, []byte(before+args+after), 0o600))
	files := []string{"-f", dir + "migrate-role.yaml", "-f", file}
	t.Cleanup(func() {
		out, err := t.kubectl(append([]string{"delete", "--ignore-not-found", "--wait"}, files...)...)
		t.check(withText(err, out))
	})
	out, err := t.kubectl(append([]string{"apply"}, files...)...)
	t.must(withText(err, out))

	pods := func() []corev1.Pod {
		list, err := t.client.CoreV1().Pods(namespace).List(t.ctx(), metav1.ListOptions{LabelSelector: "job-name=" + name})
		t.check(err)
		return list.Items
	}
	t.wait("the Job's pod", func() error {
		if !slices.ContainsFunc(pods(), func(p corev1.Pod) bool {
			return p.Status.Phase != corev1.PodPending || len(p.Status.InitContainerStatuses) > 0 && p.Status.InitContainerStatuses[0].State.Running != nil
		}) {
			return fmt.Errorf("none runs: %+v", pods())
		}
		return nil
	})
	first := pods()[0]
	now := int64(0)
	t.check(t.client.CoreV1().Pods(namespace).Delete(t.ctx(), first.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	began := time.Now()
	err = retry(migrationPatience, func() error {
		job, err := t.client.BatchV1().Jobs(namespace).Get(t.ctx(), name, metav1.GetOptions{})
		if err == nil && job.Status.Succeeded == 0 {
			err = fmt.Errorf("the Job is not done: %+v", job.Status)
		}
		return err
	})
	if err != nil {
		logs, _ := t.kubectl("logs", "--namespace", namespace, "--selector", "job-name="+name, "--all-containers", "--prefix", "--tail=-1")
		t.Fatalf("%v\n%s", err, logs)
	}
	t.note("the Job took %.0f s after its first pod was killed", time.Since(began).Seconds())
}
