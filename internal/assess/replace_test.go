package assess_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/report"
)

var update = flag.Bool("update", false, "write the golden files")

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func classesOf(t *testing.T, file string) *assess.Input {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in := read(t, string(data))
	return in
}

func plan(t *testing.T, in *assess.Input, o assess.ClassOptions) (table, manifests string, incomplete error) {
	t.Helper()
	if o.Command == "" {
		o.Command = "flex2csi migrate classes"
	}
	p, err := assess.ReplaceClasses(in, &o)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.Show(report.Table).Write(&b, report.Table); err != nil {
		t.Fatal(err)
	}
	text, err := p.YAML()
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), string(text), p.Incomplete()
}

// disk says what example.com/disk becomes, and how its classes are translated.
func disk(expression string) *bridgeconfig.Configuration {
	d := bridgeconfig.DefaultDriver()
	d.FlexDriver, d.CSIDriver, d.ClassParameters = "example.com/disk", "disk.csi.example.com", expression
	return &bridgeconfig.Configuration{Drivers: []bridgeconfig.Driver{d}}
}

// TestReplaceClasses: what is printed, in the files; and that the commands are such for a
// shell, and stop at the first one that fails.
func TestReplaceClasses(t *testing.T) {
	for name, o := range map[string]assess.ClassOptions{
		"suffix":    {Suffix: "-csi"},
		"same-name": {Command: "flex2csi migrate classes --same-name=true", Config: disk(`{"kind": parameters.type}`)},
	} {
		t.Run(name, func(t *testing.T) {
			table, manifests, incomplete := plan(t, classesOf(t, "testdata/classes.yaml"), o)
			golden(t, "testdata/classes-"+name+".txt", table)
			golden(t, "testdata/classes-"+name+".yaml", manifests)
			if (incomplete == nil) != (o.Config != nil) {
				t.Error(incomplete)
			}
			checkCommands(t, table)
		})
	}
}

// commands are those of a table, each as it is pasted.
func commands(table string) []string {
	return regexp.MustCompile(`(?m)((?:^      .*\n)+)`).FindAllString(table, -1)
}

// checkCommands has the shell read each command, and then run it with programs that fail:
// only the first one of each is started.
func checkCommands(t *testing.T, table string) {
	t.Helper()
	all := commands(table)
	if len(all) == 0 {
		t.Fatalf("no commands in\n%s", table)
	}
	for _, command := range all {
		cmd := exec.Command("/bin/sh", "-n", "-c", command)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s\n%s", err, out, command)
		}
		cmd = exec.Command("/bin/sh", "-c", "kubectl() { echo run >&2; return 1; }\nflex2csi() { kubectl; }\n"+command)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err == nil || string(out) != "run\n" {
			t.Errorf("%q after a failure of the first program (%v) of\n%s", out, err, command)
		}
	}
}

// TestTwoCSIDrivers: a class of a FlexVolume driver that stands for two CSI drivers gets that
// of its migrated volumes, or else none: the provisioner alone knows what it made.
func TestTwoCSIDrivers(t *testing.T) {
	config := disk(`{}`)
	also := config.Drivers[0]
	also.CSIDriver = "share.csi.example.com"
	config.Drivers = append(config.Drivers, also)
	in := classesOf(t, "testdata/classes.yaml")
	const made = "provisioner: disk.csi.example.com"
	if _, manifests, _ := plan(t, in, assess.ClassOptions{Suffix: "-csi", Config: config}); !strings.Contains(manifests, made) || strings.Contains(manifests, also.CSIDriver) {
		t.Errorf("with a migrated volume:\n%s", manifests)
	}
	in.PersistentVolumes = slices.DeleteFunc(in.PersistentVolumes, func(pv *corev1.PersistentVolume) bool { return pv.Spec.CSI != nil })
	if _, manifests, _ := plan(t, in, assess.ClassOptions{Suffix: "-csi", Config: config}); strings.Contains(manifests, made) || strings.Contains(manifests, also.CSIDriver) {
		t.Errorf("without one:\n%s", manifests)
	}
}

// TestPatches: the operations of each command find the class in the object, and replace it.
func TestPatches(t *testing.T) {
	table, _, _ := plan(t, classesOf(t, "testdata/classes.yaml"), assess.ClassOptions{Suffix: "-csi", Config: disk(`{}`)})
	var paths []string
	for _, m := range regexp.MustCompile(`--type=json -p '([^']*)'`).FindAllStringSubmatch(table, -1) {
		var ops []struct{ Op, Path, Value string }
		if err := json.Unmarshal([]byte(m[1]), &ops); err != nil {
			t.Fatal(err)
		}
		for _, o := range ops {
			paths = append(paths, strings.Join([]string{o.Op, o.Path, o.Value}, " "))
		}
	}
	want := []string{
		"test /spec/volumeClaimTemplates/1/spec/storageClassName block", "replace /spec/volumeClaimTemplates/1/spec/storageClassName block-csi",
		"test /spec/volumeClaimTemplates/2/metadata/annotations/volume.beta.kubernetes.io~1storage-class custom", "replace /spec/volumeClaimTemplates/2/metadata/annotations/volume.beta.kubernetes.io~1storage-class custom-csi",
		"test /spec/template/spec/volumes/0/ephemeral/volumeClaimTemplate/spec/storageClassName block", "replace /spec/template/spec/volumes/0/ephemeral/volumeClaimTemplate/spec/storageClassName block-csi",
		"test /spec/template/spec/volumes/1/ephemeral/volumeClaimTemplate/spec/storageClassName block", "replace /spec/template/spec/volumes/1/ephemeral/volumeClaimTemplate/spec/storageClassName block-csi",
		"test /spec/jobTemplate/spec/template/spec/volumes/0/ephemeral/volumeClaimTemplate/spec/storageClassName block", "replace /spec/jobTemplate/spec/template/spec/volumes/0/ephemeral/volumeClaimTemplate/spec/storageClassName block-csi",
		"test /status/phase Pending", "test /spec/storageClassName block", "replace /spec/storageClassName block-csi",
	}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Error(diff)
	}
}

// TestClassState: what can be done with a class, by what is known of it.
func TestClassState(t *testing.T) {
	custom := func(change func(*storagev1.StorageClass)) *storagev1.StorageClass {
		c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "custom"}, Provisioner: "example.com/provisioner", Parameters: map[string]string{"Type": "ssd"}}
		change(c)
		return c
	}
	other := func(provisioner string, parameters map[string]string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "custom-csi"}, Provisioner: provisioner, Parameters: parameters}
	}
	same := func(*storagev1.StorageClass) {}
	const csi = "disk.csi.example.com"
	translated := disk(`{"kind": parameters.type}`)
	for name, test := range map[string]struct {
		class      *storagev1.StorageClass
		there      *storagev1.StorageClass
		csiDrivers []string
		config     *bridgeconfig.Configuration
		suffix     string
		state      string
		says       string // in the table
	}{
		"ready":                          {custom(same), nil, []string{csi}, translated, "-csi", "ready", "parameters then: kind=ssd"},
		"CSIDriver objects not read":     {custom(same), nil, nil, translated, "-csi", "ready", ""},
		"no CSIDriver object":            {custom(same), nil, []string{}, translated, "-csi", "to decide", "install CSI driver " + csi + " first"},
		"no translation":                 {custom(same), nil, []string{csi}, disk(""), "-csi", "to fill in", "fill in parameters: those that the CSI driver wants; the old class has Type=ssd"},
		"no configuration, but migrated": {custom(same), nil, []string{csi}, nil, "-csi", "to fill in", csi},
		"translation fails":              {custom(func(c *storagev1.StorageClass) { c.Parameters = nil }), nil, nil, translated, "-csi", "to fill in", `the class has no parameter "type", which classParameters`},
		"made":                           {custom(same), other(csi, map[string]string{"kind": "ssd"}), []string{csi}, translated, "-csi", "made", ""},
		"made, other parameters":         {custom(same), other(csi, map[string]string{"kind": "hdd"}), []string{csi}, translated, "-csi", "made", "compare the parameters of StorageClass custom-csi, which is there, kind=hdd, with those translated, kind=ssd"},
		"made by a person":               {custom(same), other(csi, map[string]string{"kind": "hdd"}), []string{csi}, disk(""), "-csi", "made", "parameters then: kind=hdd"},
		"the name is taken":              {custom(same), other("example.com/provisioner", nil), []string{csi}, translated, "-csi", "blocked", "choose another --suffix"},
		"no valid name":                  {custom(same), nil, []string{csi}, translated, "_x", "blocked", "is no name of a StorageClass"},
		"too long":                       {custom(func(c *storagev1.StorageClass) { c.Name = strings.Repeat("a", 250) }), nil, []string{csi}, translated, "-csi", "blocked", "253"},
		"mount options":                  {custom(func(c *storagev1.StorageClass) { c.MountOptions = []string{"ro"} }), nil, []string{csi}, translated, "-csi", "to decide", "takes mountOptions ro"},
		"topologies": {
			custom(func(c *storagev1.StorageClass) { c.AllowedTopologies = []corev1.TopologySelectorTerm{{}} }), nil, []string{csi}, translated, "-csi", "to decide", "keys of allowedTopologies",
		},
		"of Helm":       {custom(func(c *storagev1.StorageClass) { c.Annotations = map[string]string{"meta.helm.sh/release-name": "x"} }), nil, []string{csi}, translated, "-csi", "to decide", "belongs to Helm"},
		"the same name": {custom(same), other("example.com/provisioner", nil), []string{csi}, translated, "", "ready", "kubectl delete storageclass custom"},
	} {
		t.Run(name, func(t *testing.T) {
			in := classesOf(t, "testdata/classes.yaml")
			in.StorageClasses, in.CSIDrivers = []*storagev1.StorageClass{test.class}, test.csiDrivers
			if test.there != nil {
				in.StorageClasses = append(in.StorageClasses, test.there)
			}
			table, manifests, incomplete := plan(t, in, assess.ClassOptions{Names: []string{test.class.Name}, Suffix: test.suffix, Config: test.config})
			row := strings.Split(table, "\n")[1]
			if !strings.HasSuffix(row, "  "+test.state) || !strings.Contains(table, test.says) {
				t.Errorf("no %q, or not %s:\n%s", test.says, test.state, table)
			}
			if (incomplete == nil) != slices.Contains([]string{"ready", "to decide", "made"}, test.state) {
				t.Errorf("%s: %v", test.state, incomplete)
			}
			if test.state == "blocked" && strings.Contains(table, "volume.beta.kubernetes.io") {
				t.Errorf("a claim would get a class of another kind:\n%s", table)
			}
			if test.state == "to fill in" && !strings.Contains(manifests, "<fill in parameters (") {
				t.Errorf("the API server may take\n%s", manifests)
			}
		})
	}
}

func TestUnknownClass(t *testing.T) {
	_, err := assess.ReplaceClasses(classesOf(t, "testdata/classes.yaml"), &assess.ClassOptions{Names: []string{"local"}})
	if err == nil || !strings.Contains(err.Error(), "replace StorageClass local: it does not make FlexVolumes") {
		t.Error(err)
	}
}

// TestHostileClasses: names in files may be any text. None gets into a command.
func TestHostileClasses(t *testing.T) {
	in := read(t, `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: "a; touch b\e[2J"}
provisioner: ceph.rook.io/block
parameters: {blockPool: "x\e[2J\n# y"}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: block}
provisioner: ceph.rook.io/block
parameters: {blockPool: "x\e[2J\n# y"}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {namespace: "$(touch b)", name: "c'd"}
spec: {volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: block}}]}
`)
	for _, suffix := range []string{"-csi", ""} {
		table, manifests, _ := plan(t, in, assess.ClassOptions{Suffix: suffix})
		if strings.Contains(table+manifests, "\x1b") {
			t.Errorf("a terminal would execute %q", table+manifests)
		}
		checkCommands(t, table)
		for _, c := range commands(table) {
			if strings.Contains(c, "touch") || strings.Contains(c, "c'd") {
				t.Errorf("hostile: %s", c)
			}
		}
	}
}

// TestReplaceInCluster: what a cluster says is what files say. It is read only.
func TestReplaceInCluster(t *testing.T) {
	files := classesOf(t, "testdata/classes.yaml")
	data, err := os.ReadFile("testdata/classes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []runtime.Object
	for text := range strings.SplitSeq(string(data), "\n---\n") {
		object := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			t.Fatal(err)
		}
		all = append(all, &unstructured.Unstructured{Object: object})
	}
	client := fake.NewSimpleDynamicClient(scheme.Scheme, all...)
	cluster := &assess.Input{Source: "test"}
	if err := assess.Cluster(t.Context(), &objects.Client{Dynamic: client}, cluster); err != nil {
		t.Fatal(err)
	}
	want, _, _ := plan(t, files, assess.ClassOptions{Suffix: "-csi"})
	got, _, _ := plan(t, cluster, assess.ClassOptions{Suffix: "-csi"})
	if diff := cmp.Diff(slices.Sorted(slices.Values(commands(want))), slices.Sorted(slices.Values(commands(got)))); diff != "" {
		t.Error(diff)
	}
	for _, a := range client.Actions() {
		if a.GetVerb() != "list" {
			t.Errorf("%s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}
