package assess_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// answers are what has FlexVolumes, and what has none, in few lines.
func answers() map[string]struct {
	text string
	has  bool
} {
	const pod = "{containers: [], volumes: [{name: v, flexVolume: {driver: example.com/disk}}]}"
	object := func(version, kind, rest string) string {
		return "apiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: x, namespace: shop}\n" + rest
	}
	type answer = struct {
		text string
		has  bool
	}
	const migrated = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: x, annotations: {flex2csi.io/flex-driver: example.com/disk, flex2csi.io/original: '{\"metadata\":{\"annotations\":{\"pv.kubernetes.io/provisioned-by\":\"old.example.com\"}},\"spec\":{\"flexVolume\":{\"driver\":\"example.com/disk\"}}}'}}\nspec: {csi: {driver: disk.csi.example.com, volumeHandle: h}}"
	return map[string]answer{
		"nothing":              {object("v1", "ConfigMap", "data: {a: b}"), false},
		"a workflow":           {object("argoproj.io/v1alpha1", "Workflow", "spec: "+pod), true},
		"a suspended template": {object("argoproj.io/v1alpha1", "Workflow", "spec: {suspend: true, templates: [{podSpecPatch: '"+pod+"'}]}"), true},
		"what is not clear":    {object("argoproj.io/v1alpha1", "Workflow", "spec: {volumes: [{name: v, flexVolume: {}}]}"), true},
		"a pod of a workflow":  {object("v1", "Pod", "spec: "+pod+"\nstatus: {phase: Pending}"), true},
		"a pod that is over":   {object("v1", "Pod", "spec: "+pod+"\nstatus: {phase: Succeeded}"), false},
		"a pod template":       {object("v1", "PodTemplate", "template: {spec: "+pod+"}"), true},
		"a CronJob":            {object("batch/v1", "CronJob", "spec: {jobTemplate: {spec: {template: {spec: "+pod+"}}}}"), true},
		"a scaled Deployment":  {object("apps/v1", "Deployment", "spec: {replicas: 0, template: {spec: "+pod+"}}"), true},
		"a class alone":        {"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: x}\nprovisioner: ceph.rook.io/block", true},
		"a CSI class":          {"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: x}\nprovisioner: disk.csi.example.com", false},
		"a migrated volume":    {migrated, false},
		"its provisioner":      {migrated + "\n---\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: z}\nprovisioner: old.example.com", true},
		"a Released volume":    {"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: x}\nspec: {flexVolume: {driver: another.example.com/disk}}\nstatus: {phase: Released}", true},
	}
}

// TestOneAnswer: finish said that driver and bridge could go while assess found FlexVolumes, and
// plan knew of neither. The three never disagree about a cluster.
func TestOneAnswer(t *testing.T) {
	const dir = "../migrate/testdata/cases"
	all := answers()
	files, err := filepath.Glob(dir + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if name == "base" || strings.HasSuffix(name, "-config") {
			continue
		}
		one := all[name]
		one.text, one.has = testenv.Case(t, dir, name), true
		all[name] = one
	}
	for name, test := range all {
		t.Run(name, func(t *testing.T) {
			for _, refused := range []string{"", "workflows", "podtemplates", "cronjobs"} {
				if refused != "" && name != "nothing" {
					break
				}
				says := ask(t, test.text, refused)
				for command, found := range says {
					if want := test.has || refused != ""; found != want {
						t.Errorf("refused %q: %s says %t, want %t: %v", refused, command, found, want, says)
					}
				}
			}
		})
	}
}

// ask asks each command whether something has or makes FlexVolumes, or may.
func ask(t *testing.T, text, refused string) map[string]bool {
	t.Helper()
	client := clusterOf(t, text, refused)
	in := &assess.Input{}
	if err := assess.Cluster(t.Context(), client, in); err != nil {
		t.Fatal(err)
	}
	report, err := assess.Assess(in, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	o := &migrate.Observer{Client: client, Journal: journal.New(client, migrate.Namespace, ""), Now: time.Now}
	end, err := o.Finish(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &migrate.Planner{Client: client, Config: disk(""), Now: time.Now, WithoutDryRun: true, Makers: true}
	plan, err := p.Plan(t.Context(), &migrate.Selection{All: true})
	if err != nil {
		t.Fatal(err)
	}
	planned := len(plan.Volumes)+len(plan.Related) > 0
	for _, c := range plan.Checks {
		planned = planned || c.Name == "related"
	}
	return map[string]bool{"assess": report.FlexVolumes+len(report.Incomplete) > 0, "finish": !end.Free(false), "plan": planned}
}

// clusterOf has the objects, and serves Argo's Workflows. One resource may not be read.
func clusterOf(t *testing.T, text, refused string) *objects.Client {
	t.Helper()
	return clientOf(fakeOf(t, text, refused))
}

// recorded is an empty cluster, and what it was asked.
func recorded(t *testing.T) (*objects.Client, func() []clienttesting.Action) {
	t.Helper()
	f := fakeOf(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}", "")
	return clientOf(f), f.Actions
}

func fakeOf(t *testing.T, text, refused string) *fake.FakeDynamicClient {
	t.Helper()
	var all []runtime.Object
	text += "\n---\napiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: other}" // the fake knows the kinds that it has
	for one := range strings.SplitSeq(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(one), &u.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, u)
	}
	dynamic := fake.NewSimpleDynamicClient(scheme.Scheme, all...)
	dynamic.PrependReactor("list", cmp.Or(refused, "nothing"), func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", nil)
	})
	return dynamic
}

func clientOf(dynamic *fake.FakeDynamicClient) *objects.Client {
	documents := map[string]string{
		"/apis":                      `{"groups": [{"name": "argoproj.io", "versions": [{"groupVersion": "argoproj.io/v1alpha1"}], "preferredVersion": {"groupVersion": "argoproj.io/v1alpha1"}}]}`,
		"/api/v1":                    `{"groupVersion": "v1", "resources": [{"name": "podtemplates", "verbs": ["list"]}]}`,
		"/apis/argoproj.io/v1alpha1": `{"groupVersion": "argoproj.io/v1alpha1", "resources": [{"name": "workflows", "verbs": ["list"]}]}`,
	}
	return &objects.Client{Dynamic: dynamic, Document: func(_ context.Context, path string) ([]byte, error) {
		if documents[path] == "" {
			return nil, fmt.Errorf("%s: %w", path, os.ErrNotExist)
		}
		return []byte(documents[path]), nil
	}}
}
