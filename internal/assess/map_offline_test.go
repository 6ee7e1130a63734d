package assess_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/assess"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/report"
)

// offline plans the volumes of a text with a configuration of testdata/map/offline.
func mapOffline(t *testing.T, config, text string) (*assess.Planner, *assess.MapResult, *assess.MapInput) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/map/offline", config))
	if err != nil {
		t.Fatal(err)
	}
	c, err := bridgeconfig.Loader{}.Decode(data, mapping.Check)
	if err != nil {
		t.Fatal(err)
	}
	in, err := readVolumes(text)
	if err != nil {
		t.Fatal(err)
	}
	p, err := assess.NewPlanner(c, assess.Node{Cluster: true}, in.CSIDrivers)
	if err != nil {
		t.Fatal(err)
	}
	return p, p.Report(in.Volumes), in
}

func file(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/map/offline", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestMapRefused: what the kubelet refuses was a note, with exit status 0 (fstab/cifs#15); for
// Windows and for a driver without a vendor the advice was to add the driver.
func TestMapRefused(t *testing.T) {
	const pod = "kind: Pod\nmetadata: {name: p, namespace: web}\nspec: {nodeSelector: {kubernetes.io/os: windows}, volumes: [{name: s, persistentVolumeClaim: {claimName: c}}]}\n---\n" +
		"kind: PersistentVolume\nmetadata: {name: w}\nspec: {claimRef: {namespace: web, name: c}, flexVolume: {driver: fstab/cifs, options: {networkPath: //h/a}}}\n"
	for name, want := range map[string]map[string]string{
		file(t, "mo.yaml"):       {"a": "refused: the kubelet refuses a FlexVolume with spec.mountOptions", "b": "refused: the kubelet gives no FlexVolume to a pod as a block device"},
		file(t, "refuse.yaml"):   {"a-mountoptions": "refused: the kubelet", "b-block": "refused: the kubelet", "c-opaque": "refused: the kubelet refuses Secret web/s: its type must be azure/cifs"},
		file(t, "win.yaml"):      {"win/Deployment/iis/s": "refused: Windows: "},
		pod:                      {"w": "refused: Windows: "},
		file(t, "novendor.yaml"): {"docs": `refused: driver name "azure-cifs" has no vendor`},
	} {
		_, r, _ := mapOffline(t, "smb-config.yaml", name)
		for _, p := range r.Plans {
			if got := string(p.Result) + ": " + p.Reason; want[p.DisplayName()] != "" && !strings.HasPrefix(got, want[p.DisplayName()]) {
				t.Errorf("%s: %s, want %s", p.DisplayName(), got, want[p.DisplayName()])
			}
			delete(want, p.DisplayName())
		}
		if len(want) > 0 {
			t.Errorf("not there: %v", want)
		}
	}
	_, r, _ := mapOffline(t, "rook-config.yaml", file(t, "rook.yaml"))
	for i, want := range []assess.Result{assess.Refused, assess.Refused} {
		if r.Plans[i].Result != want {
			t.Errorf("%s: %s", r.Plans[i].Volume, r.Plans[i].Result)
		}
	}
}

// TestMapAnyKind: objects other than PersistentVolumes and Pods were passed over.
func TestMapAnyKind(t *testing.T) {
	for name, want := range map[string]string{
		"dc.yaml":       "portal/DeploymentConfig/web/s",
		"template.yaml": "portal/Template/t/s",
	} {
		_, r, in := mapOffline(t, "smb-config.yaml", file(t, name))
		if len(r.Plans) != 1 || r.Plans[0].DisplayName() != want || r.Plans[0].Result != assess.NoDriver || len(in.Unclear) > 0 {
			t.Errorf("%s: %s, %q", name, r.Plans[0].DisplayName(), in.Unclear)
		}
	}
	pv := "\n---\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {flexVolume: {driver: fstab/cifs, options: {networkPath: //h/a}}}\n"
	for text, want := range map[string]string{
		"apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: x}\nspec: {source: {chart: y}}": "1 of kind Application: x: what it renders was not read",
		"kind: Thing\nmetadata: {name: x}\nspec: {volumes: [{flexVolume: {options: {}}}]}":                     "1 of kind Thing: x: spec.volumes[0].flexVolume has no driver",
		"error: Unauthorized":                      "no objects of Kubernetes: a document with the keys error: Unauthorized",
		"kind: Status\nmessage: too many requests": "an answer of the API server: too many requests",
	} {
		if _, _, in := mapOffline(t, "smb-config.yaml", text+pv); len(in.Unclear) != 1 || !strings.Contains(in.Unclear[0], want) {
			t.Errorf("%q, want %q", in.Unclear, want)
		}
		if _, err := readVolumes(text); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
	for _, text := range []string{"", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n", "<html>\n"} {
		if in, err := readVolumes(text); err == nil {
			t.Errorf("%q: %v", text, in)
		}
	}
}

// TestMaskedSecret: a callout of a log, with masked secrets, was "not valid base64"
// (juliohm1978/kubernetes-cifs-volumedriver#1).
func TestMaskedSecret(t *testing.T) {
	const line = `mount /var/lib/kubelet/pods/1/volumes/juliohm~cifs/a {"kubernetes.io/fsType":"","kubernetes.io/pod.uid":"1","kubernetes.io/pvOrVolumeName":"a","kubernetes.io/secret/password":"%","kubernetes.io/secret/username":"dQ==","opts":"vers=3.0","server":"nas","share":"/a"}`
	for _, mask := range []string{"*****", "[redacted]", "<masked>", "***stripped***", "xxxxxx", "REDACTED"} {
		p, r, _ := mapOffline(t, "smb-config.yaml", strings.Replace(line, "%", mask, 1))
		plan := p.Detail(r.Plans[0])
		text, err := plan.YAML()
		if err != nil || plan.Result != assess.OK && plan.Result != assess.Fails || !strings.Contains(string(text), "the value of password in the volume''s Secret is masked: present, unknown") {
			t.Errorf("%s: %v %s", mask, err, text)
		}
	}
	if _, err := readVolumes(strings.Replace(line, "%", "p@ss", 1)); err == nil {
		t.Error("a secret that is no base64 is taken")
	}
}

// TestMountFlags: a comma in quotes made two flags of a label.
func TestMountFlags(t *testing.T) {
	p, r, _ := mapOffline(t, "blank-config.yaml", file(t, "blank.yaml"))
	text, err := p.Detail(r.Plans[0]).YAML()
	const want = `mount_flags: - noatime - discard - context="a:b:c:s0,c1" access_mode:`
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
		t.Errorf("%v, %s", err, text)
	}
	_, r, _ = mapOffline(t, "blank-config.yaml", strings.Replace(file(t, "blank.yaml"), `c1\"`, "c1", 1))
	if got := r.Plans[0]; got.Result == assess.OK || !strings.Contains(got.Reason, "a double quote is not closed") {
		t.Errorf("%s: %s", got.Result, got.Reason)
	}
}

// TestIdleOptions: options that no mapping reads were not named, and neither were empty values for
// the CSI driver (IBM/ibmcloud-object-storage-plugin PRs 20 and 106,
// AliyunContainerService/flexvolume PR 19).
func TestIdleOptions(t *testing.T) {
	ibm := file(t, "ibm.yaml")
	cifs := "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {accessModes: [ReadWriteMany], flexVolume: {driver: fstab/cifs, options: {networkPath: //h/a, %s}}}\n"
	for name, test := range map[string]struct {
		config, text string
		idle, empty  string
	}{
		"ibm":                    {"ibm-config.yaml", ibm, "access-mode, add-mount-param, curl-debug, debug-level, kernel-cache, object-path, tls-cipher-suite, use-xattr", ""},
		"an empty one is read":   {"ibm-config.yaml", strings.Replace(ibm, `parallel-count: "2"`, `parallel-count: ""`, 1), "access-mode, add-mount-param, curl-debug, debug-level, kernel-cache, object-path, tls-cipher-suite, use-xattr", ""},
		"rook":                   {"rook-config.yaml", file(t, "rook.yaml"), "dataBlockPool, storageClass", "clusterID, pool"},
		"a fork's option":        {"smb-config.yaml", strings.Replace(cifs, "%s", "domain: corp, mountOptions: vers=3.0", 1), "domain", ""},
		"a switch that is off":   {"smb-config.yaml", strings.Replace(cifs, "%s", "guest: 'false'", 1), "", ""},
		"read in the second one": {"smb-config.yaml", strings.Replace(cifs, "%s", "selinuxEnabled: ''", 1) + "---\n" + strings.Replace(cifs, "%s", "selinuxEnabled: 'true'", 1), "", ""},
		"a name in upper case":   {"smb-config.yaml", strings.Replace(cifs, "%s", "MountOptions: ro", 1), "MountOptions", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, r, _ := mapOffline(t, test.config, test.text)
			var idle, empty []string
			for _, d := range r.Summary().Drivers {
				idle, empty = append(idle, slices.Sorted(maps.Keys(d.Idle))...), append(empty, slices.Sorted(maps.Keys(d.Empty))...)
			}
			if got := strings.Join(idle, ", "); got != test.idle {
				t.Errorf("without an effect: %s, want %s", got, test.idle)
			}
			if got := strings.Join(empty, ", "); got != test.empty {
				t.Errorf("empty: %s, want %s", got, test.empty)
			}
			var b strings.Builder
			if err := r.Show(report.Table).Write(&b, report.Table); err != nil || test.idle != "" && !strings.Contains(b.String(), "have no effect") {
				t.Errorf("%v\n%s", err, b.String())
			}
		})
	}
	p, r, _ := mapOffline(t, "ibm-config.yaml", ibm)
	if notes := strings.Join(p.Detail(r.Plans[0]).Notes, "\n"); !strings.Contains(notes, "option object-path has no effect: the mapping does not read it") {
		t.Error(notes)
	}
}
