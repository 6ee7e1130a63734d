package rbac_test

import (
	"context"
	"errors"
	"maps"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/flex2csi/flex2csi/test/controlplane"
)

// TestRights: each right of docs/rbac.md is there, and what a thief would want
// is not.
func TestRights(t *testing.T) {
	p := installed(t)
	p.FlexVolume("pv-1", "example.com/disk", "", nil)
	for _, user := range []string{nodeUser, controllerUser} {
		client := p.Client(podToken(t, p, user, "node-1"))
		t.Run(user, func(t *testing.T) {
			may := rights(client)
			if user == nodeUser {
				maps.Copy(may, nodeRights(client))
			}
			for what, try := range may {
				if err := try(t.Context()); err != nil && !apierrors.IsNotFound(err) {
					t.Errorf("%s: %v", what, err)
				}
			}
			mayNot := noRights(client)
			if user == nodeUser {
				mayNot["list nodes"] = of(func(ctx context.Context) (any, error) { return client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}) })
			} else {
				maps.Copy(mayNot, nodeRights(client))
			}
			for what, try := range mayNot {
				if err := try(t.Context()); !apierrors.IsForbidden(err) {
					t.Errorf("%s: %v, want Forbidden", what, err)
				}
			}
			testLeases(t, client, user != nodeUser)
		})
	}
	t.Run("secrets", func(t *testing.T) {
		c := p.Client(podToken(t, p, nodeUser, "node-1"))
		if _, err := c.CoreV1().Secrets(namespace).Get(t.Context(), "credentials", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("one that is named in the Role: %v, want NotFound", err)
		}
	})
}

// A try is a request.
type try func(ctx context.Context) error

func of[T any](f func(context.Context) (T, error)) try {
	return func(ctx context.Context) error {
		_, err := f(ctx)
		return err
	}
}

// nodeRights are those that a node has, and a controller that only sweeps has not.
func nodeRights(c kubernetes.Interface) map[string]try {
	core, storage := c.CoreV1(), c.StorageV1()
	all, watch := metav1.ListOptions{}, metav1.ListOptions{TimeoutSeconds: new(int64)}
	return map[string]try{
		"list csidrivers":  of(func(ctx context.Context) (any, error) { return storage.CSIDrivers().List(ctx, all) }),
		"watch csidrivers": of(func(ctx context.Context) (any, error) { return storage.CSIDrivers().Watch(ctx, watch) }),
		"get csinodes": of(func(ctx context.Context) (any, error) {
			return storage.CSINodes().Get(ctx, "node-1", metav1.GetOptions{})
		}),
		"create events": func(ctx context.Context) error { return makeEvent(ctx, core) },
	}
}

// makeEvent makes an Event and changes it.
func makeEvent(ctx context.Context, core corev1client.CoreV1Interface) error {
	e, err := core.Events("default").Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: "x-", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "x"},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = core.Events("default").Patch(ctx, e.Name, types.MergePatchType, []byte(`{"count":2}`), metav1.PatchOptions{})
	return err
}

// rights are those that both have.
func rights(c kubernetes.Interface) map[string]try {
	core, storage := c.CoreV1(), c.StorageV1()
	none, all := metav1.GetOptions{}, metav1.ListOptions{}
	watch := metav1.ListOptions{TimeoutSeconds: new(int64)}
	return map[string]try{
		"get volumeattachments":   of(func(ctx context.Context) (any, error) { return storage.VolumeAttachments().Get(ctx, "x", none) }),
		"list volumeattachments":  of(func(ctx context.Context) (any, error) { return storage.VolumeAttachments().List(ctx, all) }),
		"watch volumeattachments": of(func(ctx context.Context) (any, error) { return storage.VolumeAttachments().Watch(ctx, watch) }),
		"get nodes":               of(func(ctx context.Context) (any, error) { return core.Nodes().Get(ctx, "node-1", none) }),
		"get persistentvolumes":   of(func(ctx context.Context) (any, error) { return core.PersistentVolumes().Get(ctx, "pv-1", none) }),
		"list pods":               of(func(ctx context.Context) (any, error) { return core.Pods("").List(ctx, all) }),
	}
}

// noRights are some rights that no part of flex2csi has.
func noRights(c kubernetes.Interface) map[string]try {
	core, storage := c.CoreV1(), c.StorageV1()
	none, all := metav1.GetOptions{}, metav1.ListOptions{}
	patch := func(to func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) error, name string, sub ...string) try {
		return func(ctx context.Context) error {
			return to(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"x":"y"}}}`), metav1.PatchOptions{}, sub...)
		}
	}
	nodes := func(ctx context.Context, name string, t types.PatchType, b []byte, o metav1.PatchOptions, sub ...string) error {
		_, err := core.Nodes().Patch(ctx, name, t, b, o, sub...)
		return err
	}
	attachments := func(ctx context.Context, name string, t types.PatchType, b []byte, o metav1.PatchOptions, sub ...string) error {
		_, err := storage.VolumeAttachments().Patch(ctx, name, t, b, o, sub...)
		return err
	}
	watch := metav1.ListOptions{TimeoutSeconds: new(int64)}
	return map[string]try{
		"get csidrivers":             of(func(ctx context.Context) (any, error) { return storage.CSIDrivers().Get(ctx, "x", none) }),
		"list csinodes":              of(func(ctx context.Context) (any, error) { return storage.CSINodes().List(ctx, all) }),
		"watch csinodes":             of(func(ctx context.Context) (any, error) { return storage.CSINodes().Watch(ctx, watch) }),
		"watch nodes":                of(func(ctx context.Context) (any, error) { return core.Nodes().Watch(ctx, watch) }),
		"get pods":                   of(func(ctx context.Context) (any, error) { return core.Pods("default").Get(ctx, "x", none) }),
		"list persistentvolumes":     of(func(ctx context.Context) (any, error) { return core.PersistentVolumes().List(ctx, all) }),
		"get a secret":               of(func(ctx context.Context) (any, error) { return core.Secrets("kube-system").Get(ctx, "x", none) }),
		"list secrets":               of(func(ctx context.Context) (any, error) { return core.Secrets(namespace).List(ctx, all) }),
		"list claims":                of(func(ctx context.Context) (any, error) { return core.PersistentVolumeClaims("default").List(ctx, all) }),
		"patch a volumeattachment":   patch(attachments, "x"),
		"patch the status of one":    patch(attachments, "x", "status"),
		"patch a node":               patch(nodes, "node-1"),
		"patch the status of a node": patch(nodes, "node-1", "status"),
		"delete a pod":               func(ctx context.Context) error { return core.Pods("default").Delete(ctx, "x", metav1.DeleteOptions{}) },
		"delete a persistentvolume": func(ctx context.Context) error {
			return core.PersistentVolumes().Delete(ctx, "x", metav1.DeleteOptions{})
		},
		"delete a node": func(ctx context.Context) error { return core.Nodes().Delete(ctx, "node-2", metav1.DeleteOptions{}) },
		"get leases of others": of(func(ctx context.Context) (any, error) {
			return c.CoordinationV1().Leases("kube-system").Get(ctx, "x", none)
		}),
		"delete volumeattachments all at once": func(ctx context.Context) error {
			return storage.VolumeAttachments().DeleteCollection(ctx, metav1.DeleteOptions{}, all)
		},
		"execute in a pod": func(ctx context.Context) error {
			return core.RESTClient().Post().Namespace("default").Resource("pods").Name("x").SubResource("exec").Do(ctx).Error()
		},
	}
}

func testLeases(t *testing.T, c kubernetes.Interface, may bool) {
	leases := c.CoordinationV1().Leases(namespace)
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "flex2csi-controller", Namespace: namespace}}
	made, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
	if !may {
		wantForbidden(t, err)
		return
	}
	wantDone(t, "make the Lease", err)
	_, err = leases.Update(t.Context(), made, metav1.UpdateOptions{})
	wantDone(t, "renew the Lease", err)
	_, err = leases.Get(t.Context(), "another", metav1.GetOptions{})
	wantForbidden(t, err)
}

// TestTokens: of a pod's service account, for audiences that are allowed, and
// never for the API server.
func TestTokens(t *testing.T) {
	p := installed(t)
	setVariables(t, p, "flex2csi-node-tokens", map[string]string{"audiences": "['vault']"})
	p.ServiceAccount("default", "app")
	pod := p.Pod("default", "app", "node-1", "app")
	client := p.Client(podToken(t, p, nodeUser, "node-1"))
	ask := func(spec authenticationv1.TokenRequestSpec) error {
		_, err := client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "app", &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
		return err
	}
	bound := &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	eventually(t, "the policy", func(context.Context) error {
		if err := ask(authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}); err == nil {
			return errors.New("not in force yet")
		}
		return nil
	})
	eventually(t, "a token for an audience that is allowed", func(context.Context) error {
		return ask(authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}, BoundObjectRef: bound})
	})
	for why, spec := range map[string]authenticationv1.TokenRequestSpec{
		"is bound to no pod": {Audiences: []string{"vault"}},
		"bound to no pod":    {Audiences: []string{"vault"}, BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name}},
		// The API server takes its own audiences for none.
		"does not have the audience": {BoundObjectRef: bound},
		"have the audience":          {Audiences: []string{"https://kubernetes.default.svc"}, BoundObjectRef: bound},
		"not have the audience":      {Audiences: []string{"vault", "https://kubernetes.default.svc"}, BoundObjectRef: bound},
	} {
		wantRefused(t, ask(spec), why)
	}
	admin := p.Client(controlplane.Admin)
	if _, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "app", &authenticationv1.TokenRequest{}, metav1.CreateOptions{}); err != nil {
		t.Errorf("an administrator: %v", err)
	}
}
