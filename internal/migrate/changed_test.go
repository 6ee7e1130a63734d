package migrate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/migrate"
)

// Volumes as they are asked for.
const (
	wantedCSI = `{"metadata":{"name":"pv1","labels":{"a":"b"}},"spec":{
		"capacity":{"storage":"1024Mi"},"accessModes":["ReadWriteOnce"],"volumeMode":"Filesystem","persistentVolumeReclaimPolicy":"Retain",
		"csi":{"driver":"disk.csi.example.com","volumeHandle":"vol-1","volumeAttributes":{"tier":"gold"}}}}`
	wantedFlex = `{"metadata":{"name":"pv1"},"spec":{
		"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"volumeMode":"Filesystem","persistentVolumeReclaimPolicy":"Retain",
		"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]}]}]}},
		"mountOptions":["noatime"],"flexVolume":{"driver":"example.com/disk","options":{"volumeID":"vol-1"}}}}`
)

// TestAdded: a plan said of a volume that it was stored as it is, where a webhook
// had given it mount options with which it was not mounted, or a node that it was
// not on; and another client's volume passed for the one that was to be created.
func TestAdded(t *testing.T) {
	for name, test := range map[string]struct {
		want, before, after string
		changed             string // empty: as it is
		new, created        bool   // whether it matches
	}{
		"nothing": {wantedCSI, `"spec":{`, `"spec":{`, "", true, true},
		"what the API server and people may add": {
			wantedCSI, `"labels":{"a":"b"}},"spec":{`, `"uid":"u","labels":{"a":"b","team":"x"},"annotations":{"c":"d"}},"status":{"phase":"Available"},"spec":{"claimRef":{"name":"c"},`, "", true, true,
		},
		"a quantity in another way": {wantedCSI, "1024Mi", "1Gi", "", true, true},
		"mount options":             {wantedCSI, `"csi":`, `"mountOptions":["ro"],"csi":`, `spec.mountOptions is ["ro"], which was not asked for`, false, true},
		"node affinity":             {wantedCSI, `"csi":`, `"nodeAffinity":{"required":{}},"csi":`, `spec.nodeAffinity is {"required":{}}, which was not asked for`, false, true},
		"an attribute":              {wantedCSI, `"tier":"gold"`, `"tier":"gold","encrypted":"yes"`, `spec.csi.volumeAttributes.encrypted is "yes", which was not asked for`, false, true},
		"another attribute":         {wantedCSI, `"tier":"gold"`, `"tier":"tin"`, `spec.csi.volumeAttributes.tier is "tin", and "gold" was asked for`, false, false},
		"a secret":                  {wantedCSI, `"driver":`, `"nodeStageSecretRef":{"name":"s"},"driver":`, `spec.csi.nodeStageSecretRef is {"name":"s"}, which was not asked for`, false, true},
		"read-only":                 {wantedCSI, `"driver":`, `"readOnly":true,"driver":`, `spec.csi.readOnly is true, which was not asked for`, false, true},
		"a filesystem":              {wantedCSI, `"driver":`, `"fsType":"ext4","driver":`, `spec.csi.fsType is "ext4", which was not asked for`, false, true},
		"a secret to expand with":   {wantedCSI, `"driver":`, `"controllerExpandSecretRef":{"name":"s"},"driver":`, `spec.csi.controllerExpandSecretRef is {"name":"s"}, which was not asked for`, false, true},

		"FlexVolume: nothing":          {wantedFlex, `"spec":{`, `"spec":{`, "", true, true},
		"FlexVolume: an option":        {wantedFlex, `"volumeID":`, `"pool":"p","volumeID":`, `spec.flexVolume.options.pool is "p", which was not asked for`, false, true},
		"FlexVolume: a secret":         {wantedFlex, `"driver":`, `"secretRef":{"name":"s"},"driver":`, `spec.flexVolume.secretRef is {"name":"s"}, which was not asked for`, false, true},
		"FlexVolume: read-only":        {wantedFlex, `"driver":`, `"readOnly":true,"driver":`, `spec.flexVolume.readOnly is true, which was not asked for`, false, true},
		"FlexVolume: another affinity": {wantedFlex, `"zone"`, `"region"`, "spec.nodeAffinity.required.nodeSelectorTerms is ", false, true},
		"FlexVolume: one more option":  {wantedFlex, `["noatime"]`, `["noatime","ro"]`, `spec.mountOptions is ["noatime","ro"], and ["noatime"] was asked for`, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			is := strings.Replace(test.want, test.before, test.after, 1)
			changed, err := migrate.ChangedBy([]byte(test.want), []byte(is))
			if err != nil {
				t.Fatal(err)
			}
			if test.changed == "" && len(changed) > 0 || test.changed != "" && (len(changed) != 1 || !strings.HasPrefix(changed[0], test.changed)) {
				t.Errorf("changed: %q", changed)
			}
			var matches []bool
			for _, created := range []bool{false, true} {
				same, err := migrate.Matches([]byte(test.want), []byte(is), created)
				if err != nil {
					t.Fatal(err)
				}
				matches = append(matches, same)
			}
			if !slices.Equal(matches, []bool{test.new, test.created}) {
				t.Errorf("it matches as a new one, as that which was created: %v", matches)
			}
		})
	}
}
