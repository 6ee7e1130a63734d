package migrate_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// TestRestoredPolicy: --restore-reclaim-policy gave a volume with Delete and no provisioner the
// CSI driver's, and what nothing had deleted before was deleted with its claim.
func TestRestoredPolicy(t *testing.T) {
	for name, test := range map[string]struct{ provisioner, policy, want string }{
		"provisioned":     {"old.example.com", "Delete", "disk.csi.example.com"},
		"static":          {"", "Delete", ""},
		"retained":        {"old.example.com", "Retain", ""},
		"static, recycle": {"", "Recycle", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJourney(t, true, journal.Live)
				modify(j.api, objects.PersistentVolumes(), "", "pv1", func(pv *corev1.PersistentVolume) {
					pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimPolicy(test.policy)
					if delete(pv.Annotations, "pv.kubernetes.io/provisioned-by"); test.provisioner != "" {
						pv.Annotations["pv.kubernetes.io/provisioned-by"] = test.provisioner
					}
				})
				j.restore = true
				j.wants(t.Context(), "apply")
				pv := j.volume()
				if got := pv.Annotations["pv.kubernetes.io/provisioned-by"]; got != test.want || string(pv.Spec.PersistentVolumeReclaimPolicy) != test.policy {
					t.Errorf("policy %s, provisioned by %q", pv.Spec.PersistentVolumeReclaimPolicy, got)
				}
			})
		})
	}
}

// TestChangedMeanwhile: a rollback took labels, annotations and the class away that the volume had
// got since its migration.
func TestChangedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJourney(t, true, journal.Live)
		j.wants(t.Context(), "apply")
		modify(j.api, objects.PersistentVolumes(), "", "pv1", func(pv *corev1.PersistentVolume) {
			pv.Labels["team"], pv.Annotations["example.com/owner"], pv.Spec.StorageClassName = "shop", "ann", "gold"
			delete(pv.Labels, "tier")
			pv.Annotations["pv.kubernetes.io/provisioned-by"] = "disk.csi.example.com"
		})
		j.was.Labels = map[string]string{"team": "shop"}
		j.was.Annotations["example.com/owner"], j.was.Spec.StorageClassName = "ann", "gold"
		j.wants(t.Context(), "rollback")
		j.isFlex()
	})
}

// TestChangedBefore: an annotation that another client set between plan and the swap was a reason
// to stop, and resume stopped again.
func TestChangedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJourney(t, true, journal.Live)
		j.api.before = func(_ int, request string) error {
			if request == "delete persistentvolumes" && j.volume().Annotations["example.com/owner"] == "" {
				modify(j.api, objects.PersistentVolumes(), "", "pv1", func(pv *corev1.PersistentVolume) {
					pv.Annotations["example.com/owner"], pv.Labels = "ann", nil
				})
			}
			return nil
		}
		j.wants(t.Context(), "apply")
		j.heal()
		pv := j.volume()
		if pv.Annotations["example.com/owner"] != "ann" || pv.Labels["tier"] != "" || !strings.Contains(pv.Annotations[migrate.OriginalAnnotation], `"example.com/owner":"ann"`) {
			t.Errorf("%q, %q", pv.Annotations, pv.Labels)
		}
		j.was.Labels, j.was.Annotations["example.com/owner"] = nil, "ann"
		j.wants(t.Context(), "rollback")
		j.isFlex()
	})
}

// TestForgedLabels: the labels and annotations that a record gives the replacement were created,
// where the FlexVolume of the record was the one that is there.
func TestForgedLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJourney(t, true, journal.Live)
		j.stopBefore("delete persistentvolumes")
		r := j.runner()
		records, err := r.Resumable(t.Context(), []string{"pv1"})
		if err != nil {
			t.Fatal(err)
		}
		rec := records[0]
		forged := strings.Replace(string(rec.CSI), `"labels":{`, `"labels":{"forged":"yes",`, 1)
		if forged == string(rec.CSI) {
			t.Fatalf("nothing to forge in %s", rec.CSI)
		}
		rec.CSI, rec.To = []byte(forged), []byte(forged)
		if err := r.Journal.Save(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		j.wants(t.Context(), "resume")
		if pv := j.volume(); pv.Labels["forged"] != "" || pv.Spec.CSI == nil {
			t.Errorf("%+v", pv)
		}
	})
}

// TestReleasedAndTaken: plan said live of a Released volume with the name of another claim, as
// StatefulSets make them, and apply failed and stopped the run, again and again.
func TestReleasedAndTaken(t *testing.T) {
	finds(t, map[string]finding{
		"another claim of the name": {func(s *stock) {
			s.pv.Status.Phase, s.claim.UID, s.claim.Spec.VolumeName = corev1.VolumeReleased, "another", "pv2"
			s.more = append(s.more, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv2"}, Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "orders", UID: "another"}}})
		}, "state", migrate.Fails, "its claim's name is that of another claim now (shop/orders, uid another)"},
	})
}

// TestRollingRefused: --rolling evicted pods that could not end: on a node that is not Ready, or
// with more time to end than the wait has.
func TestRollingRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*journey)
		says   string
	}{
		"a node that is not Ready": {func(j *journey) {
			modify(j.api, objects.Nodes(), "", "node-1", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
		}, "not Ready"},
		"a long end": {func(j *journey) {
			modify(j.api, objects.Pods(), "shop", "orders-0", func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(600)) })
		}, "terminationGracePeriodSeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJourney(t, true, journal.Rolling)
				test.change(j)
				came, err := j.do(t.Context(), "apply")
				if err != nil || came.Outcome != migrate.Left || !strings.Contains(came.Why, test.says) || j.api.requested("create pods/eviction") {
					t.Errorf("%+v, %v", came, err)
				}
			})
		})
	}
}

// TestTwoClaims: --rolling restarted a pod with two claims twice, and a pod that took longer to end
// than --timeout was put back; plan said neither.
func TestTwoClaims(t *testing.T) {
	j := newJourney(t, true, journal.Rolling)
	modify(j.api, objects.Pods(), "shop", "orders-0", func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = new(int64(600))
		second := p.Spec.Volumes[0].DeepCopy()
		second.Name, second.PersistentVolumeClaim.ClaimName = "more", "more"
		p.Spec.Volumes = append(p.Spec.Volumes, *second)
	})
	j.second("pv2", "more")
	plan, err := j.runner().Planner.Plan(t.Context(), &migrate.Selection{All: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"--rolling restarts pod shop/orders-0 2 times: once for each of ",
		"PersistentVolume pv1: pod shop/orders-0 may take 10m0s to end (terminationGracePeriodSeconds), and --timeout is 5m0s",
	} {
		if !slices.ContainsFunc(plan.Checks, func(c migrate.Check) bool { return c.Status == migrate.Note && strings.Contains(c.Evidence, want) }) {
			t.Errorf("the plan does not say %q: %+v, %s", want, plan.Checks, plan.Volumes[1].Method)
		}
	}
}

// TestPodStays: PUT BACK said neither how long the pod may take nor that --timeout ends the wait.
func TestPodStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJourney(t, true, journal.Rolling)
		j.api.stays = true
		came, err := j.do(t.Context(), "apply")
		if err != nil || came.Outcome != migrate.PutBack || !strings.Contains(came.Why, "timed out after 1m0s (--timeout): pod shop/orders-0: it has not ended yet (its terminationGracePeriodSeconds: 30)") {
			t.Errorf("%+v, %v", came, err)
		}
		j.isFlex()
	})
}

// TestNodeLost: with the pod deleted by force on a node that does not answer, the replacement
// was created, and its successor could mount what the node still had.
func TestNodeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJourney(t, true, journal.Rolling)
		j.api.before = func(_ int, request string) error {
			if request == "create pods/eviction" {
				modify(j.api, objects.Nodes(), "", "node-1", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
			}
			return nil
		}
		came, err := j.do(t.Context(), "apply")
		if err != nil || came.Outcome != migrate.PutBack || !strings.Contains(came.Why, "node node-1 is not Ready") {
			t.Errorf("%+v, %v", came, err)
		}
		if pv := j.volume(); pv == nil || pv.Spec.FlexVolume == nil {
			t.Errorf("%+v", pv)
		}
	})
}

// TestNodeDead: of a node that does not answer, and that the bridge's ConfigMap and volumesInUse still
// list, the wait said "flex2csi status there"; with the taint out-of-service it never ended, although
// Kubernetes has nothing wait for such a node.
func TestNodeDead(t *testing.T) {
	for name, test := range map[string]struct {
		off  bool
		want migrate.Outcome
		says string
	}{
		"not Ready":      {false, migrate.PutBack, "node node-1 is not Ready, and whether it still has the volume is not known: wait until it is Ready; if its machine is off for certain, kubectl taint nodes node-1 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, or delete the Node"},
		"out of service": {true, migrate.Done, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJourney(t, true, journal.Rolling)
				j.api.before = func(_ int, request string) error {
					switch request {
					case "create pods/eviction":
						j.api.quiet = true // the node reports nothing any more
						modify(j.api, objects.Nodes(), "", "node-1", func(n *corev1.Node) {
							n.Status.Conditions[0].Status = corev1.ConditionUnknown
							n.Status.VolumesInUse = []corev1.UniqueVolumeName{objects.FlexVolumeName("example.com/disk", "pv1")}
							if test.off {
								n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}}
							}
						})
						_ = j.api.object.Delete(objects.VolumeAttachments().Resource, "", objects.AttachmentName("vol-1", "disk.csi.example.com", "node-1")) // the sweeper
					case "create persistentvolumes":
						j.api.quiet = false
					}
					return nil
				}
				came, err := j.do(t.Context(), "apply")
				if err != nil || came.Outcome != test.want || !strings.Contains(came.Why, test.says) {
					t.Errorf("%+v, %v", came, err)
				}
			})
		})
	}
}

// TestClaimDeleted: with the claim deleted while it was Lost, the message advised a resume, which
// can only end as before.
func TestClaimDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJourney(t, false, journal.Live)
		j.api.before = func(_ int, request string) error {
			if request == "create persistentvolumes" {
				_ = j.api.object.Delete(objects.Claims().Resource, "shop", "orders")
			}
			return nil
		}
		for _, command := range []string{"apply", "resume"} {
			came, err := j.do(t.Context(), command)
			if err != nil || came.Outcome != migrate.Unfinished || !strings.Contains(came.Why, "claim shop/orders was deleted: PersistentVolume pv1 keeps what is stored (reclaim policy Retain); roll back") {
				t.Errorf("%s: %+v, %v", command, came, err)
			}
		}
		if came, err := j.do(t.Context(), "rollback"); err != nil || came.Outcome != migrate.Done || j.volume().Spec.FlexVolume == nil {
			t.Errorf("rollback: %+v, %v", came, err)
		}
	})
}

// slow is an API server that takes its time to create a PersistentVolume, and does not when it
// is not waited for.
type slow struct {
	dynamic.Interface
	takes time.Duration
}

func (s slow) Resource(r schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return slowResource{s.Interface.Resource(r), s.takes}
}

type slowResource struct {
	dynamic.NamespaceableResourceInterface
	takes time.Duration
}

func (s slowResource) Create(ctx context.Context, o *unstructured.Unstructured, options metav1.CreateOptions, sub ...string) (*unstructured.Unstructured, error) {
	if o.GetKind() == "PersistentVolume" && len(options.DryRun) == 0 {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(s.takes):
		}
	}
	return s.NamespaceableResourceInterface.Create(ctx, o, options, sub...)
}

// TestSlowCreate: an API server that took 12 s for the replacement was asked again and again for
// 10 s, and the claim stayed Lost.
func TestSlowCreate(t *testing.T) {
	for _, takes := range []time.Duration{12 * time.Second, 30 * time.Second, 55 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j := newJourney(t, true, journal.Live)
				j.takes = takes
				if came := j.wants(t.Context(), "apply"); came.Lost > takes+2*time.Second {
					t.Errorf("the claim was Lost for %s", came.Lost)
				}
				j.isCSI()
			})
		})
	}
}
