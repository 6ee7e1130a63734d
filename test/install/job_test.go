package install

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/flex2csi/flex2csi/test/install/render"
)

// migrateJob are the objects that docs/migrate.md, In the cluster, has people apply.
func migrateJob(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for _, file := range []string{"migrate-role.yaml", "job.yaml"} {
		objects, err := render.File(manifests + "/migrate/" + file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, objects...)
	}
	return all
}

// TestMigrateJob: a pod that is started again resumes before it applies, and its account has
// the rights of the roles.
func TestMigrateJob(t *testing.T) {
	objects := migrateJob(t)
	pod := get[corev1.PodSpec](t, find(t, objects, "Job", "flex2csi-migrate"), "spec.template.spec")
	if len(pod.InitContainers) != 1 || len(pod.Containers) != 1 || pod.RestartPolicy != corev1.RestartPolicyNever {
		t.Fatalf("%+v", pod)
	}
	resume, apply := pod.InitContainers[0], pod.Containers[0]
	for args, want := range map[*[]string][]string{
		&resume.Args: {"migrate", "resume", "--in-cluster"},
		&apply.Args:  {"migrate", "apply", "--in-cluster", "--yes"},
	} {
		if !slices.Equal((*args)[:len(want)], want) || !slices.Contains(*args, "--journal=/journal") {
			t.Errorf("%q", *args)
		}
	}
	if limit := apply.Resources.Limits.Memory().Value(); len(apply.Env) != 1 || apply.Env[0].Name != "GOMEMLIMIT" || apply.Env[0].Value != "400MiB" || limit != 512<<20 {
		t.Errorf("%v, and the limit is %d", apply.Env, limit)
	}
	resume.Name, resume.Args, apply.Name, apply.Args = "", nil, "", nil
	if diff := cmp.Diff(apply, resume); diff != "" {
		t.Errorf("apply (-) and resume (+) differ:\n%s", diff)
	}
	rights := given(t, objects)
	if len(rights) != 1 || !slices.Contains(rights[pod.ServiceAccountName], "delete persistentvolumes") || !slices.Contains(rights[pod.ServiceAccountName], "create configmaps -n flex2csi") {
		t.Errorf("%q", rights)
	}
}
