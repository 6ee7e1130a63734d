package migrate_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
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
