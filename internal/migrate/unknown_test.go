package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// transients are what an API server says that is overloaded, or away, or changes its leader.
func transients() map[string]error {
	status := func(code int32, reason metav1.StatusReason, text string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: text}}
	}
	return map[string]error{
		"429": apierrors.NewTooManyRequests("too many requests", 1), "500": apierrors.NewInternalError(errors.New("a webhook: timeout")),
		"503": apierrors.NewServiceUnavailable("away"), "504": apierrors.NewTimeoutError("late", 1),
		"leader":     status(http.StatusInternalServerError, "", "etcdserver: leader changed"),
		"etcd":       status(http.StatusInternalServerError, "", "etcdserver: request timed out"),
		"expired":    status(http.StatusGone, metav1.StatusReasonExpired, "too old"),
		"deadline":   context.DeadlineExceeded,
		"connection": errors.New("read tcp: connection reset by peer"),
	}
}

// TestUnknownIsNoRefusal: a 429 or a 500 to a dry run was "the API server does not take the
// replacement", the volume was left, and apply --all ended with 0.
func TestUnknownIsNoRefusal(t *testing.T) {
	for name, err := range transients() {
		for _, request := range []string{"create persistentvolumes (dry run)", "delete persistentvolumes (dry run)", "patch persistentvolumes (dry run)", "list nodes", "get csinodes"} {
			t.Run(strings.ReplaceAll(name+"/"+request, " ", "-"), func(t *testing.T) {
				j := newJourney(t, true, journal.Live)
				j.api.before = func(_ int, is string) error {
					if is == request {
						return err
					}
					return nil
				}
				r := j.runner()
				plan, err := r.Planner.Plan(t.Context(), &migrate.Selection{All: true})
				if err != nil {
					t.Fatal(err)
				}
				tasks, left := migrate.Choose(plan, r.Options)
				if v := plan.Volumes[0]; v.Method != migrate.Unknown || len(plan.Unknown()) != 1 || len(tasks) > 0 || left[0].Outcome != migrate.Undecided {
					t.Errorf("%s, %q: %+v", v.Method, v.Why, left)
				}
			})
		}
	}
}

// TestUnknownOnTheWay: the last check before the swap is tried again.
func TestUnknownOnTheWay(t *testing.T) {
	for name, err := range transients() {
		t.Run(name, func(t *testing.T) {
			for _, command := range []string{"apply", "rollback"} {
				synctest.Test(t, func(t *testing.T) {
					j := newJourney(t, true, journal.Live)
					j.prepare(command)
					times := 0
					j.api.before = func(_ int, is string) error {
						planned := command == "apply" && !j.api.requested("patch persistentvolumes")
						if strings.HasSuffix(is, "persistentvolumes (dry run)") && !planned && times < 3 {
							times++
							return err
						}
						return nil
					}
					j.api.requests = nil
					j.wants(t.Context(), command)
					if times != 3 {
						t.Errorf("%s: %d times", command, times)
					}
				})
			}
		})
	}
}

// TestPolicies: a policy or a webhook that refuses the DELETE, or the patch that takes the
// finalizers, was found when the volume was being deleted, and then there was no way back.
func TestPolicies(t *testing.T) {
	for _, request := range []string{"delete persistentvolumes", "patch persistentvolumes"} {
		for _, command := range []string{"apply", "rollback"} {
			t.Run(strings.ReplaceAll(request+"/"+command, " ", "-"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					j := newJourney(t, true, journal.Live)
					j.prepare(command)
					deny := apierrors.NewForbidden(objects.PersistentVolumes().Resource.GroupResource(), "pv1", fmt.Errorf("ValidatingAdmissionPolicy 'keep' denied the request"))
					j.api.before = func(_ int, is string) error {
						if is == request+" (dry run)" {
							return deny
						}
						return nil
					}
					came, err := j.do(t.Context(), command)
					if err != nil || came.Outcome != migrate.Left || !strings.Contains(came.Why, "ValidatingAdmissionPolicy") {
						t.Errorf("%+v, %v", came, err)
					}
					if command == "apply" {
						j.isFlex()
					} else {
						j.isCSI()
					}
				})
			})
		}
	}
}
