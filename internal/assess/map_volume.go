package assess

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A FlexVolume is what the kubelet would tell a FlexVolume driver about one.
type FlexVolume struct {
	// From is where it comes from, for messages.
	From string
	// FlexDriver is vendor/name; empty if nothing tells.
	FlexDriver string
	// Options are those of mount: the most that the kubelet ever tells.
	Options flex.Options
	// Dir is the pod's volume directory; empty: where the kubelet has it.
	Dir string
	// NewSize and OldSize are those of an expansion; 0: none is shown.
	NewSize, OldSize int64
	// ControlPlaneAttaches says that it comes from a callout that there is only
	// with attach: true.
	ControlPlaneAttaches bool
	// Claim and Pod are namespace/name, if they are known.
	Claim, Pod string
	// Notes are what is odd about it.
	Notes []string
	// Err is why the kubelet could not call a driver for it.
	Err error

	accessModes   []string // of the PersistentVolume
	inline        bool
	template      string // namespace/kind/name of the object that makes pods with it
	refused       string // why the kubelet or the bridge does not serve it, whatever the mapping
	unknownSecret bool   // it has a Secret, and nothing tells what is in it
}

// assume makes up the keys of a Secret that was not given; what they hold is
// never shown. keys are those that the configuration asks for.
func (v *FlexVolume) assume(keys []string) {
	if !v.unknownSecret || len(keys) == 0 {
		return
	}
	v.Options.Secrets = map[string]flex.Secret{}
	for _, key := range keys {
		v.Options.Secrets[key] = flex.NewSecret([]byte(notKnown))
	}
	v.note("assumed that the volume's Secret has the keys " + strings.Join(keys, ", "))
}

// notKnown stands for a secret. It is masked wherever it would be shown.
const notKnown = "a value that flex2csi map does not know"

// assumedFile stands for the files with secrets. They are on a node, and are not read.
func assumedFile(path, key string) (map[string]flex.Secret, error) {
	if key == "" {
		key = "<the keys in " + path + ">"
	}
	return map[string]flex.Secret{key: flex.NewSecret([]byte(notKnown))}, nil
}

// oddities are notes that need the result of the mapping.
func (v *FlexVolume) oddities(mapped *csivol.Volume) []string {
	// The kubelet's CSI plugin takes the first (pkg/volume/csi/csi_attacher.go,
	// Attach, Kubernetes v1.37.1); a FlexVolume driver is not told any.
	mode := cmp.Or(mapped.AccessMode, csivol.ReadWriteOnce)
	if len(v.accessModes) == 0 || slices.Contains(v.accessModes, string(mode)) {
		return nil
	}
	why := "volume.accessMode gives "
	if mapped.AccessMode == "" {
		why = "flex2csi serve knows them only with access to the API server (--in-cluster); without it the volume is "
	}
	return []string{fmt.Sprintf("the PersistentVolume has the access modes %s, and %s%s", strings.Join(v.accessModes, ", "), why, mode)}
}
