package kube

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

// TestDeniesInline: only a policy that lets the same pod without the volume pass says
// something of inline volumes.
func TestDeniesInline(t *testing.T) {
	policy := errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no")
	rbac := errors.New(`User "me" cannot create resource "pods"`)
	for name, tt := range map[string]struct {
		with, without error // of a pod with the volume, and of one without it
		denied, fails bool
	}{
		"no policy":                {nil, nil, false, false},
		"a policy for the volume":  {policy, nil, true, false},
		"a policy for all pods":    {policy, policy, false, true},
		"no right":                 {rbac, rbac, false, true},
		"no right to know further": {policy, rbac, false, true},
	} {
		client := fake.NewClientset()
		client.PrependReactor("create", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
			pod := a.(k8stesting.CreateAction).GetObject().(*corev1.Pod)
			err := tt.without
			if len(pod.Spec.Volumes) > 0 {
				err = tt.with
			}
			if err != nil {
				err = apierrors.NewForbidden(corev1.Resource("pods"), "probe", err)
			}
			return true, pod, err
		})
		c := &Cluster{core: client.CoreV1()}
		says, err := c.DeniesInline(t.Context(), "example.com/disk")
		if (says != "") != tt.denied || (err != nil) != tt.fails {
			t.Errorf("%s: %q, %v", name, says, err)
		}
	}
}
