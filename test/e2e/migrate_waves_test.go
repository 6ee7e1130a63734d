package e2e

import (
	"errors"
	"fmt"
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

// migrateAsJob runs the Job for the namespace of the scenario, and kills its first pod.
func (t *T) migrateAsJob() {
	t.Helper()
	t.migrating.Lock()
	defer t.migrating.Unlock()
	t.startJob()
	t.wait("the Job's pod", func() error {
		if !slices.ContainsFunc(t.jobPods(), func(p corev1.Pod) bool {
			return p.Status.Phase != corev1.PodPending || len(p.Status.InitContainerStatuses) > 0 && p.Status.InitContainerStatuses[0].State.Running != nil
		}) {
			return fmt.Errorf("none runs: %+v", t.jobPods())
		}
		return nil
	})
	first := t.jobPods()[0]
	now := int64(0)
	t.check(t.client.CoreV1().Pods(installed).Delete(t.ctx(), first.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	began := time.Now()
	t.waitJob(migrationPatience, 1)
	t.note("the Job took %.0f s after its first pod was killed", time.Since(began).Seconds())
}

const jobName = "flex2csi-migrate"

// startJob runs what install/migrate/job.yaml does until the scenario ends: for its namespace,
// and without some of the arguments.
func (t *T) startJob(without ...string) {
	t.Helper()
	const dir, begin = "../../install/migrate/", "            - "
	text, err := fileText(dir + "job.yaml")
	t.must(err)
	args := begin + "--namespace=" + t.Namespace + "\n"
	if !tested() {
		args += begin + "--accept=node\n"
	}
	edits := map[string]string{"--driver=example.com/disk": args}
	for _, argument := range without {
		edits[argument] = ""
	}
	for argument, edit := range edits {
		line := begin + argument + "\n"
		if !strings.Contains(text, line) {
			t.Fatalf("job.yaml does not have %q", line)
		}
		text = strings.Replace(text, line, edit, 1)
	}
	file := filepath.Join(t.TempDir(), "job.yaml")
	t.must(writeFile(file, text))
	files := []string{"-f", dir + "migrate-role.yaml", "-f", file}
	t.Cleanup(func() {
		out, err := t.kubectl(append([]string{"delete", "--ignore-not-found", "--wait"}, files...)...)
		t.check(withText(err, out))
	})
	out, err := t.kubectl(append([]string{"apply"}, files...)...)
	t.must(withText(err, out))
}

func (t *T) jobPods() []corev1.Pod {
	list, err := t.client.CoreV1().Pods(installed).List(t.ctx(), metav1.ListOptions{LabelSelector: "job-name=" + jobName})
	t.check(err)
	return list.Items
}

// waitJob waits until the Job has succeeded, with some of its pods failed at most.
func (t *T) waitJob(patience time.Duration, failed int32) {
	t.Helper()
	var tooMany error
	err := retry(patience, func() error {
		job, err := t.client.BatchV1().Jobs(installed).Get(t.ctx(), jobName, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case job.Status.Failed > failed:
			tooMany = errors.New("the Job has failed pods")
		case job.Status.Succeeded == 0:
			return fmt.Errorf("the Job is not done: %+v", job.Status)
		}
		return nil
	})
	if err := errors.Join(err, tooMany); err != nil {
		text := ""
		for _, pod := range t.jobPods() {
			text += pod.Name + ": " + terminations(&pod) + "\n"
		}
		logs, _ := t.kubectl("logs", "--namespace", installed, "--selector", "job-name="+jobName, "--all-containers", "--prefix", "--tail=100")
		t.Fatalf("%v\n%s%s", err, text, logs)
	}
}
