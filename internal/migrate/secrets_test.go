package migrate_test

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestSecretNames: the API server takes any text for the name of a FlexVolume's
// Secret, and the plan has a command with it that a person pastes.
func TestSecretNames(t *testing.T) {
	config, err := bridgeconfig.Loader{}.Decode([]byte(`{"apiVersion": "flex2csi.io/v1alpha1", "kind": "BridgeConfiguration", "drivers": [{"flexDriver": "example.com/disk", "csiDriver": "disk.csi.example.com", "volume": {"handle": "options.volumeID"}, "secrets": {"nodeStage": {"fromFlexSecret": {"userName": "username"}}}}]}`), mapping.Check)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x; touch /tmp/p #", "$(id)", "a'b", "-oyaml", "..", "A"} {
		old := strings.Replace(flexJSON, `"options":`, `"secretRef":{"name":"`+name+`"},"options":`, 1)
		_, v, err := migrate.Render(t.Context(), config, []byte(old))
		if err != nil {
			t.Fatal(err)
		}
		var fails bool
		for _, c := range v.Checks {
			fails = fails || c.Name == "secrets" && c.Status == migrate.Fails && strings.Contains(c.Evidence, "cannot be")
		}
		if !fails || len(v.Secrets) > 0 {
			t.Errorf("%q: %+v", name, v)
		}
	}
}

// TestCopyCommand has a shell run the command, as people do.
func TestCopyCommand(t *testing.T) {
	dir := t.TempDir()
	kubectl := "#!/bin/sh\nfor word; do echo \"<$word>\"; done >>" + dir + "/called\n"
	if err := os.WriteFile(dir+"/kubectl", []byte(kubectl), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &migrate.SecretCopy{From: "shop/x; touch " + dir + "/pasted #", To: "shop/it's", Keys: map[string]string{"a": "b"}}
	command := exec.Command("/bin/sh", "-c", migrate.CopyCommand(s))
	command.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "pasted")); err == nil {
		t.Error("the name of a Secret was run")
	}
	text, err := os.ReadFile(dir + "/called")
	if err != nil || !strings.Contains(string(text), "<x; touch "+dir+"/pasted #>") || !strings.Contains(string(text), `"name":"it's"`) {
		t.Errorf("%v: %s", err, text)
	}
}

// TestNoSecretIsKept: the values of a volume's Secret are nowhere but in the Secret, neither
// in the journal nor on the disk nor in any other object.
func TestNoSecretIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJourney(t, true, journal.Live)
		j.config = strings.Replace(configuration, `"csiDriver"`, `"secrets":{"nodeStage":{"fromFlexSecret":{"password":"password"}}},"csiDriver"`, 1)
		modify(j.api, objects.PersistentVolumes(), "", "pv1", func(pv *corev1.PersistentVolume) {
			pv.Spec.FlexVolume.SecretRef = &corev1.SecretReference{Namespace: "shop", Name: "login"}
		})
		j.was = read(j.api, objects.PersistentVolumes(), "", "pv1")
		j.api.add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "login"}, Type: "example.com/disk", Data: map[string][]byte{"password": []byte("swordfish")}})
		var sent []string // requests, and what they have
		guard := j.api.seen
		j.api.seen = func(action clienttesting.Action) {
			guard(action)
			sent = append(sent, fmt.Sprintf("%+v", action))
		}
		for _, command := range []string{"apply", "rollback"} {
			if result, err := j.do(t.Context(), command); err != nil || result.Outcome != migrate.Done {
				t.Fatalf("%s: %+v, %v", command, result, err)
			}
		}
		kept := map[string]string{"requests": strings.Join(sent, "\n")}
		if err := fs.WalkDir(os.DirFS(j.dir), ".", func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(filepath.Join(j.dir, path))
			kept[path] = string(data)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		record := read(j.api, objects.ConfigMaps(), migrate.Namespace, journal.ConfigMapName("pv1"))
		kept["the journal"] = record.Data["record.json"]
		if len(kept) < 4 || !strings.Contains(kept["the journal"], "shop") || !strings.Contains(kept["requests"], "login") {
			t.Fatalf("too little was looked at: %d, %q", len(kept), kept["the journal"])
		}
		for where, text := range kept {
			for _, secret := range []string{"swordfish", base64.StdEncoding.EncodeToString([]byte("swordfish"))} {
				if strings.Contains(text, secret) {
					t.Errorf("%s has the password", where)
				}
			}
		}
	})
}
