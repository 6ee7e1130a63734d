package bridgeconfig_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/mapping"
)

// TestClassParameters: classes as the old provisioners' documents write them, and what they
// become; for each preset that translates them, and no other.
func TestClassParameters(t *testing.T) {
	rook := func(namespace string, others map[string]string) map[string]string {
		all := map[string]string{
			"clusterID": namespace, "imageFormat": "2", "imageFeatures": "layering", "csi.storage.k8s.io/fstype": "ext4",
			"csi.storage.k8s.io/provisioner-secret-name": "rook-csi-rbd-provisioner", "csi.storage.k8s.io/provisioner-secret-namespace": namespace,
			"csi.storage.k8s.io/controller-expand-secret-name": "rook-csi-rbd-provisioner", "csi.storage.k8s.io/controller-expand-secret-namespace": namespace,
			"csi.storage.k8s.io/node-stage-secret-name": "rook-csi-rbd-node", "csi.storage.k8s.io/node-stage-secret-namespace": namespace,
		}
		maps.Copy(all, others)
		return all
	}
	type params = map[string]string
	tests := map[string][][2]params{
		"oci-block": {
			{{}, {"csi.storage.k8s.io/fstype": "ext4"}},
			{{"fsType": "ext3", "volumeRoundingUpEnabled": "false"}, {"csi.storage.k8s.io/fstype": "ext3"}},
			{{"fsType": "xfs"}, {"csi.storage.k8s.io/fstype": "ext4"}}, // as the provisioner did
		},
		"rook-rbd": {
			{{"blockPool": "replicapool"}, rook("rook-ceph", params{"pool": "replicapool"})},
			{{"BlockPool": "meta", "dataBlockPool": "ec", "clusterNamespace": "prod", "fstype": "xfs"}, rook("prod", params{"pool": "meta", "dataPool": "ec", "csi.storage.k8s.io/fstype": "xfs"})},
			{{"pool": "old", "clusterName": "rook", "dataBlockPool": ""}, rook("rook", params{"pool": "old"})},
			{{"clusterNamespace": "rook-ceph"}, nil}, // the provisioner refused it, too
		},
	}
	for _, p := range all(t) {
		if (p.ClassParameters != "") != (tests[p.Name] != nil) {
			t.Errorf("%s: translates %v, tested %v", p.Name, p.ClassParameters != "", tests[p.Name] != nil)
		}
		for _, test := range tests[p.Name] {
			got, err := mapping.ClassParameters(p.ClassParameters, test[0])
			if diff := cmp.Diff(test[1], got); diff != "" || (err == nil) != (test[1] != nil) {
				t.Errorf("%s %v: %v\n%s", p.Name, slices.Sorted(maps.Keys(test[0])), err, diff)
			}
		}
	}
}
