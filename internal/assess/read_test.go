package assess_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestFormats: a list as kubectl prints it, as YAML and JSON, and documents of their own
// are the same.
func TestFormats(t *testing.T) {
	documents := fixture(t)
	want := lines(assessed(t, read(t, documents)))
	var items []any
	for text := range strings.SplitSeq(documents, "\n---\n") {
		var item map[string]any
		if err := yaml.Unmarshal([]byte(text), &item); err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	list, err := yaml.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON(list)
	if err != nil {
		t.Fatal(err)
	}
	indented := strings.Replace(string(list), "items:\n", "items: # all\n", 1) // is not cut into its items
	for name, text := range map[string]string{
		"list": string(list), "JSON": string(asJSON), "JSON twice": string(asJSON) + "\n" + string(asJSON), "uncut list": indented,
		"indented items": indent(string(list)), "no items": `{"apiVersion": "v1", "kind": "PodList", "items": null}` + "\n" + string(asJSON),
		"CRLF": strings.ReplaceAll(documents, "\n", "\r\n"), "list and documents": "# text\n" + string(list) + "--- # more\n" + documents,
		"no line end": strings.TrimSuffix(string(list), "\n"),
	} {
		in := read(t, text)
		if diff := cmp.Diff(want, lines(assessed(t, in))); diff != "" || len(in.Unread) > 0 {
			t.Errorf("%s: unread %q: %s", name, in.Unread, diff)
		}
	}
}

// indent moves the items of a list from the left margin, as some editors do.
func indent(list string) string {
	head, items, _ := strings.Cut(list, "items:\n")
	items, tail, _ := strings.Cut(items, "\nkind:")
	return head + "items:\n  " + strings.ReplaceAll(items, "\n", "\n  ") + "\nkind:" + tail
}

// TestUnreadSecret: what is no object is named without its values.
func TestUnreadSecret(t *testing.T) {
	for _, text := range []string{"- - data: {password: aHVudGVyMg==}\n", `[["aHVudGVyMg=="]]`, `{"kind": "List", "items": "aHVudGVyMg=="}`} {
		in := read(t, text)
		if all := fmt.Sprint(in.Unread); len(in.Unread) == 0 || strings.Contains(all, "aHVudGVyMg") {
			t.Errorf("%s: unread %s", text, all)
		}
	}
}

// TestUnread: what is not valid is reported with its place, and the rest is read.
func TestUnread(t *testing.T) {
	volume := "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {flexVolume: {driver: a/b}}\n"
	for name, text := range map[string]string{
		"template":  "{{ if .Values.a }}\n---\n" + volume,
		"type":      "apiVersion: v1\nkind: Pod\nspec: {volumes: 7}\n---\n" + volume,
		"half JSON": `{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"name":"a"},"spec":{"flexVolume":{"driver":"a/b"}}} {"a`,
	} {
		in := read(t, text)
		r := assessed(t, in)
		if len(in.Unread) != 1 || !strings.Contains(in.Unread[0], "read test, document at line 1: ") || r.FlexVolumes != 1 || len(r.Incomplete) != 1 {
			t.Errorf("%s: unread %q, items %q", name, in.Unread, lines(r))
		}
	}
}

// TestCluster reads a cluster in which this user may not list CSIDrivers.
func TestCluster(t *testing.T) {
	var all []runtime.Object
	for _, o := range read(t, fixture(t)).PersistentVolumes {
		all = append(all, o)
	}
	all = append(all, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.37.1"}}})
	client := fake.NewSimpleDynamicClient(scheme.Scheme, all...)
	client.PrependReactor("list", "csidrivers", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "csidrivers"}, "", nil)
	})
	in := &assess.Input{ServerVersion: "v1.37.1"}
	if err := assess.Cluster(t.Context(), &objects.Client{Dynamic: client}, in); err != nil {
		t.Fatal(err)
	}
	r := assessed(t, in)
	if len(r.Incomplete) != 1 || !strings.Contains(r.Incomplete[0], "csidrivers") {
		t.Errorf("incomplete %q", r.Incomplete)
	}
	if r.Items[1].Name != "orders" || r.Items[1].Result != "CheckCSIDriver" || r.Releases[0].Nodes != 1 {
		t.Errorf("items %q, releases %v", lines(r), r.Releases)
	}
	for _, a := range client.Actions() {
		if a.GetVerb() != "list" {
			t.Errorf("it does %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

// TestClusterUnavailable: an assessment of a cluster that does not answer would say that
// nothing is left.
func TestClusterUnavailable(t *testing.T) {
	client := fake.NewSimpleDynamicClient(scheme.Scheme)
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("down")
	})
	if err := assess.Cluster(t.Context(), &objects.Client{Dynamic: client}, &assess.Input{}); err == nil {
		t.Error("no error")
	}
}
