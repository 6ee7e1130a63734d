package bridgeconfig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/trust"
)

const loaded = `apiVersion: flex2csi.io/v1alpha1
kind: BridgeConfiguration
drivers:
- {flexDriver: a/b, csiDriver: b.example.com, timeouts: {stage: 2m, attach: 7s}}
`

// TestLoader: a timeout from the outside is for what the file does not say,
// also where the file says what would be the default.
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
	got := c.Drivers[0].Timeouts
	for name, tt := range map[string]struct{ got, want bridgeconfig.Duration }{
		"stage":   {got.Stage, bridgeconfig.Duration(2 * time.Minute)},
		"attach":  {got.Attach, bridgeconfig.Duration(7 * time.Second)},
		"publish": {got.Publish, bridgeconfig.Duration(5 * time.Minute)},
		"detach":  {got.Detach, bridgeconfig.Duration(5 * time.Minute)},
	} {
		if tt.got != tt.want {
			t.Errorf("%s is %v, want %v", name, tt.got, tt.want)
		}
	}
	if _, err := (bridgeconfig.Loader{Others: trust.MayRead}).Load(path); err == nil || !strings.Contains(err.Error(), "(chmod go-w)") {
		t.Errorf("what others can change is loaded: %v", err)
	}
}
