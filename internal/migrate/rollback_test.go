package migrate_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestRollbackOfOldKubelet: a kubelet before 1.28 does not tell the mounts of a FlexVolume and
// a CSI volume of one name apart when it is restarted, in either direction.
func TestRollbackOfOldKubelet(t *testing.T) {
	for version, refused := range map[string]bool{"v1.27.16": true, "v1.28.0": false} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJourney(t, true, journal.Live)
				if _, err := j.do(t.Context(), "apply"); err != nil {
					t.Fatal(err)
				}
				modify(j.api, objects.Nodes(), "", "node-1", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = version })
				result, err := j.do(t.Context(), "rollback")
				if err != nil {
					t.Fatal(err)
				}
				if !refused {
					j.isFlex()
					return
				}
				if result.Outcome != migrate.Left || !strings.Contains(result.Why, version) || !strings.Contains(result.Why, "--offline") {
					t.Errorf("%s: %s", result.Outcome, result.Why)
				}
				j.isCSI()
			})
		})
	}
}

// TestVolumeNames: people name a claim, too.
func TestVolumeNames(t *testing.T) {
	a := newAPI(t,
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-1"}},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pending"}},
	)
	r := &migrate.Runner{Client: a.client()}
	for _, tt := range []struct {
		names []string
		want  []string
		err   string
	}{
		{nil, nil, ""},
		{[]string{"pv-2", "shop/orders"}, []string{"pv-2", "pv-1"}, ""},
		{[]string{"shop/pending"}, nil, "find the volume of claim shop/pending: there is no such claim with a volume"},
		{[]string{"shop/none"}, nil, "find the volume of claim shop/none: "},
	} {
		got, err := r.VolumeNames(t.Context(), tt.names)
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: %q, %v", tt.names, got, err)
		}
	}
}

// TestPodComesMeanwhile: a pod that began to use an idle volume after that was accepted was waited
// for until --timeout, though it had what it needs to go on: the first pod after --rolling, for one,
// where the migration was taken back right then.
func TestPodComesMeanwhile(t *testing.T) {
	for command, dryRuns := range map[string]int{"apply": 4, "rollback": 2} {
		t.Run(command, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJourney(t, false, journal.Live)
				if command == "rollback" {
					j.wants(t.Context(), "apply")
				}
				j.api.before = func(_ int, request string) error {
					switch {
					case request == "create persistentvolumes (dry run)":
						dryRuns--
					case request == "list volumeattachments" && dryRuns == 0:
						dryRuns--
						j.api.person(1)
					}
					return nil
				}
				j.wants(t.Context(), command)
				if pod := read(j.api, objects.Pods(), "shop", "orders-0"); pod == nil || pod.Spec.NodeName == "" {
					t.Errorf("the pod is %+v", pod)
				}
			})
		})
	}
}
