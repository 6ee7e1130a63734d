package bridgeconfig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/hostfile"
)

const loaded = `apiVersion: flex2csi.io/v1alpha1
kind: BridgeConfiguration
drivers:
- {flexDriver: a/b, csiDriver: b.example.com}
`

// TestLoader: the timeout is from the outside, and the file is of root.
func TestLoader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(loaded), 0o622); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o622); err != nil {
		t.Fatal(err)
	}
	c, err := bridgeconfig.Loader{Timeout: 5 * time.Minute}.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Drivers[0].Timeout; got != 5*time.Minute {
		t.Errorf("the timeout is %v, want 5m", got)
	}
	if _, err := (bridgeconfig.Loader{Others: hostfile.MayRead}).Load(path); err == nil || !strings.Contains(err.Error(), "(chmod go-w)") {
		t.Errorf("what others can change is loaded: %v", err)
	}
}

// TestRemovedFields: a configuration of an earlier version says what to do with it.
func TestRemovedFields(t *testing.T) {
	for field, says := range map[string]string{
		"directPublish: true": "drivers[0].directPublish (line 4): was removed: ",
		"stagingRoot: /srv":   "drivers[0].stagingRoot (line 4): was removed: delete the field, and mount ",
		"sizeLimits: CSI":     "drivers[0].sizeLimits (line 4): was removed: delete the field",
		"timeouts: {}":        "drivers[0].timeouts (line 4): was removed: delete the field, and set --timeout of flex2csi serve",
	} {
		_, err := bridgeconfig.Loader{}.Decode([]byte(strings.Replace(loaded, "csiDriver:", field+", csiDriver:", 1)))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
