package assess_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/internal/report"
)

func read(t *testing.T, text string) *assess.Input {
	t.Helper()
	in := &assess.Input{Source: "test"}
	if err := assess.Manifests("test", strings.NewReader(text), in); err != nil {
		t.Fatal(err)
	}
	return in
}

func assessed(t *testing.T, in *assess.Input) *assess.Report {
	t.Helper()
	r, err := assess.Assess(in, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func fixture(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// lines are the items, shortened.
func lines(r *assess.Report) (all []string) {
	for _, i := range r.Items {
		all = append(all, strings.Join(strings.Fields(fmt.Sprintln(i.Kind, i.Namespace, i.Name, i.FlexDriver, i.StorageClass, i.Pods, i.Nodes, i.Preset, i.Result)), " "))
	}
	return all
}

func TestAssess(t *testing.T) {
	in := read(t, fixture(t))
	in.ServerVersion = "v1.30.2"
	r := assessed(t, in)
	want := []string{
		"PersistentVolume iscsi example.com/disk 0 [] WriteMapping",
		"PersistentVolume shop orders oracle/oci oci 2 [node-1 node-2] oci-block Ready",
		"PersistentVolume shop share ceph.rook.io/rook 0 [] rook-cephfs Ready",
		"PersistentVolume web web-share fstab/cifs 1 [] fstab-cifs InstallCSIDriver",
		"InlineVolume mesh Pod/envoy/sync nodeagent/uds 1 [node-1] Unsupported",
		"InlineVolumeTemplate shop CronJob/backup/target fstab/cifs 0 [] fstab-cifs Rewrite",
		"EphemeralVolume shop Deployment/cache/scratch oracle/oci oci 0 [] oci-block ReplaceClass",
		"StorageClass custom example.com/disk custom 0 [] ReplaceClass",
		"StorageClass oci oracle/oci oci 0 [] oci-block ReplaceClass",
		"PendingClaim shop beta example.com/disk custom 0 [] ReplaceClass",
		"PendingClaim shop new oracle/oci oci 0 [] oci-block ReplaceClass",
		"ClaimTemplate shop StatefulSet/db/data oracle/oci oci 0 [] oci-block ReplaceClass",
	}
	if diff := cmp.Diff(want, lines(r)); diff != "" {
		t.Error(diff)
	}
	if r.FlexVolumes != len(want) || r.Migrated != 1 || len(r.Incomplete) > 0 {
		t.Errorf("%d FlexVolumes, %d migrated, incomplete %q", r.FlexVolumes, r.Migrated, r.Incomplete)
	}
	var releases []string
	for _, one := range r.Releases {
		releases = append(releases, strings.TrimSpace(fmt.Sprintln(one.Release, one.Server, one.Nodes, one.Tested, len(one.Lacks) > 0)))
	}
	if diff := cmp.Diff([]string{"1.29 false 1 false true", "1.30 true 0 false true", "1.37 false 1 true false"}, releases); diff != "" {
		t.Error(diff)
	}
	if e, err := json.Marshal(r.Estimate); err != nil || string(e) != `{"live":true,"volumes":2,"withPods":1,"minSeconds":16,"maxSeconds":91}` {
		t.Errorf("estimate: %s, %v", e, err)
	}
}

// TestTable: what is in the way, and the next steps.
func TestTable(t *testing.T) {
	var b strings.Builder
	if err := assessed(t, read(t, fixture(t))).Show(report.Table).Write(&b, report.Table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Kubernetes 1.29 lacks ValidatingAdmissionPolicy",
		"example.com/disk: no preset fits",
		"fstab/cifs: there is no CSIDriver object smb.csi.k8s.io",
		"fstab/cifs: inline volumes cannot migrate, in pods and templates: 1",
		"nodeagent/uds: no preset: Calico's socket",
		"oracle/oci: StorageClasses, claims and templates make new FlexVolumes: 4",
		"flex2csi preset show --set ocidPrefix=VALUE --set secret=VALUE rook-cephfs fstab-cifs oci-block >config.yaml",
		"kubectl get csidriver smb.csi.k8s.io\n",
		"takes 16s to 1m31s by the figures",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "orders") {
		t.Errorf("the summary has volumes:\n%s", b.String())
	}
	b.Reset()
	if err := assessed(t, read(t, fixture(t))).Show(report.Wide).Write(&b, report.Wide); err != nil || !strings.Contains(b.String(), "orders") {
		t.Errorf("wide has no volumes (%v):\n%s", err, b.String())
	}
}

// TestEstimateNotLive: an old release restarts each pod in a migration.
func TestEstimateNotLive(t *testing.T) {
	const text = "Before Kubernetes 1.28 no migration is live"
	for version, want := range map[string]bool{"v1.27.16": true, "v1.28.0": false} {
		in := read(t, fixture(t))
		in.ServerVersion = version
		for _, n := range in.Nodes {
			n.Status.NodeInfo.KubeletVersion = version
		}
		var b strings.Builder
		if err := assessed(t, in).Show(report.Table).Write(&b, report.Table); err != nil || strings.Contains(b.String(), text) != want {
			t.Errorf("%s (%v): want %q: %v, but the report is\n%s", version, err, text, want, b.String())
		}
	}
}

func TestNothingLeft(t *testing.T) {
	r := assessed(t, read(t, "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {csi: {driver: d, volumeHandle: h}}\n"))
	if r.FlexVolumes != 0 || len(r.Next) != 1 || !strings.HasPrefix(r.Next[0].Do, "nothing") || r.Estimate != nil {
		t.Errorf("%+v", r)
	}
}

// TestRook: one driver has volumes of two kinds, and its name is the operator's namespace.
func TestRook(t *testing.T) {
	volume := "---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: %s}\nspec: {flexVolume: {driver: ceph.rook.io/prod, fsType: %s}}\n"
	r := assessed(t, read(t, fmt.Sprintf(volume, "a", "ceph")+fmt.Sprintf(volume, "b", "xfs")+fmt.Sprintf(volume, "c", `""`)+
		"---\napiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: prod.rbd.csi.ceph.com}\n"))
	want := []string{
		"PersistentVolume a ceph.rook.io/prod 0 [] rook-cephfs InstallCSIDriver",
		"PersistentVolume b ceph.rook.io/prod 0 [] rook-rbd Ready",
		"PersistentVolume c ceph.rook.io/prod 0 [] rook-rbd Ready",
	}
	if diff := cmp.Diff(want, lines(r)); diff != "" {
		t.Error(diff)
	}
	var what []string
	for _, o := range r.Obstacles {
		what = append(what, o.String())
	}
	for _, want := range []string{"ceph.rook.io/prod: its volumes are of more than one CSI driver", "ceph.rook.io/prod: preset rook-rbd has another name of the driver"} {
		if !strings.Contains(strings.Join(what, "\n"), want) {
			t.Errorf("%q is not in %q", want, what)
		}
	}
}

// TestAnotherVendor: the example drivers of Kubernetes were installed under many vendors.
// For example.com/disk preset alicloud-disk was named as similar.
func TestAnotherVendor(t *testing.T) {
	for driver, want := range map[string][]string{"acme.org/lvm": {"k8s-lvm"}, "acme.org/disk": nil} {
		r := assessed(t, read(t, "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {flexVolume: {driver: "+driver+"}}\n"))
		if diff := cmp.Diff(want, r.Drivers[0].Similar); diff != "" || r.Items[0].Result != "WriteMapping" {
			t.Errorf("%s: result %s, similar presets: %s", driver, r.Items[0].Result, diff)
		}
	}
}

// TestNoPresets: the next step was the list of presets also where only Calico's driver is,
// which its operator installs by default.
func TestNoPresets(t *testing.T) {
	pod := "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: mesh}\nspec: {volumes: [{name: v, flexVolume: {driver: %s}}]}\n"
	for _, driver := range []string{"nodeagent/uds", "ibm/ibmc-s3fs", "azure/kv", "huawei.com/fuxiobs"} {
		r := assessed(t, read(t, fmt.Sprintf(pod, "a", driver)))
		if r.Items[0].Result != "Unsupported" || len(r.Next) != 1 || !strings.HasPrefix(r.Next[0].Do, driver+": ") || r.Next[0].Command != "" {
			t.Errorf("%s: %s, next %+v", driver, r.Items[0].Result, r.Next)
		}
	}
	r := assessed(t, read(t, fmt.Sprintf(pod, "a", "nodeagent/uds")+fmt.Sprintf(pod, "b", "example.com/disk")))
	if len(r.Next) != 2 || r.Next[1].Command != "flex2csi preset list" {
		t.Errorf("next %+v", r.Next)
	}
}

// TestHostileNames: the name of a driver may be any text.
func TestHostileNames(t *testing.T) {
	r := assessed(t, read(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"b"},"spec":{"volumes":[{"name":"c","flexVolume":{"driver":"=<script>\u001b[2J/x"}}]}}`))
	var page, table, sheet strings.Builder
	if err := r.Show(report.Page).Write(&page, report.Page); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(page.String(), "<script>"); n != 1 {
		t.Errorf("%d scripts", n)
	}
	if err := r.Show(report.Wide).Write(&table, report.Wide); err != nil || strings.Contains(table.String(), "\x1b") {
		t.Errorf("a terminal would execute %q (%v)", table.String(), err)
	}
	if err := r.Show(report.CSV).Write(&sheet, report.CSV); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(sheet.String())).ReadAll()
	if err != nil || len(rows) != 2 || !strings.HasPrefix(rows[1][3], "'=<script>") {
		t.Errorf("a spreadsheet would execute %q (%v)", rows, err)
	}
}

// TestFigures: the estimate is made from the figures of the guide.
func TestFigures(t *testing.T) {
	guide, err := os.ReadFile("../../docs/migrate-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, figure := range []string{"| a volume | 15 to 90 s,", "| a volume without pods | 1 s |"} {
		if !strings.Contains(string(guide), figure) {
			t.Errorf("the guide has no %q; change the constants of the estimate, too", figure)
		}
	}
}

// TestOwners: the report says to the owners of volumes what its results mean for them.
func TestOwners(t *testing.T) {
	var b strings.Builder
	if err := assessed(t, read(t, fixture(t))).Show(report.Page).Write(&b, report.Page); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"For the owners of the volumes": true, "Each pod with a FlexVolume restarts once": true, "all pods with its volumes at once if it attaches": true, "before Kubernetes 1.28 none is live": true,
		"Ready: it can migrate": true, "WriteMapping: the operator": true, "ReplaceClass: it makes new FlexVolumes": true,
		"CheckCSIDriver: ": false,
	} {
		if strings.Contains(b.String(), text) != want {
			t.Errorf("%q: want %v", text, want)
		}
	}
}

// TestNextRefused: the operator was not sent to see which pods an installation refuses.
func TestNextRefused(t *testing.T) {
	for configuration, want := range map[string]bool{"": true, "drivers: []\n": false} {
		in := read(t, fixture(t))
		in.Configuration = configuration
		got := false
		for _, s := range assessed(t, in).Next {
			got = got || s.Command == "flex2csi assess --config config.yaml"
		}
		if got != want {
			t.Errorf("with configuration %q: %v", configuration, got)
		}
	}
}
