package manifests_test

import (
	"flag"
	"testing"

	"github.com/flex2csi/flex2csi/hack/manifests"
	"github.com/flex2csi/flex2csi/hack/manual"
)

var update = flag.Bool("update", false, "update the files")

// TestManifests: what install/ says again is what it says elsewhere. With -update
// (make docs) it is made so.
func TestManifests(t *testing.T) {
	const root = "../.."
	files, err := manifests.Files(root)
	if err != nil {
		t.Fatal(err)
	}
	manual.Check(t, root, files, *update, manifests.Overlays+"/*/*", manifests.Chart+"/files/*")
}
