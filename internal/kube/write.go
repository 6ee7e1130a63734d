package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/flex2csi/flex2csi/internal/clusterview"
)

// What follows changes objects, which are JSON here, too. A request is made once:
// who made it looks at what came of it before the next, and a client that tries
// again by itself would answer for two.

// change makes a request that changes something.
func (c *Cluster) change(ctx context.Context, q *rest.Request, body []byte, contentType, what string) ([]byte, error) {
	data, err := c.do(ctx, q.MaxRetries(0).SetHeader("Content-Type", contentType).Body(body))
	if err != nil {
		return nil, answered(err, what)
	}
	return data, nil
}

// CreateObject makes an object, and returns it as it is stored. A field that the API
// server does not know is an error.
func (c *Cluster) CreateObject(ctx context.Context, r clusterview.Resource, namespace string, object []byte) ([]byte, error) {
	var named metav1.PartialObjectMetadata
	if err := json.Unmarshal(object, &named); err != nil {
		return nil, fmt.Errorf("create %s: %w", r.Name, err)
	}
	q := c.core.RESTClient().Post().AbsPath(r.Path(namespace)).Param("fieldValidation", metav1.FieldValidationStrict)
	stored, err := c.change(ctx, q, object, jsonType, fmt.Sprintf("create %s %s", r.Name, nameIn(namespace, named.Name)))
	if errors.Is(err, clusterview.ErrExists) && !isAbout(err, r.Name, named.Name) { // so says a webhook: who looks finds nothing
		return nil, answer{errors.New(err.Error()), clusterview.ErrRefused}
	}
	return stored, err
}

// DeleteObject asks for the end of an object, which may still be there after if it has
// finalizers.
func (c *Cluster) DeleteObject(ctx context.Context, r clusterview.Resource, namespace, name string, p clusterview.Preconditions) error {
	body, err := json.Marshal(deleteOptions(p, nil))
	if err != nil {
		return err
	}
	q := c.core.RESTClient().Delete().AbsPath(r.Path(namespace), name)
	_, err = c.change(ctx, q, body, jsonType, fmt.Sprintf("delete %s %s", r.Name, nameIn(namespace, name)))
	return err
}

func deleteOptions(p clusterview.Preconditions, dryRun []string) *metav1.DeleteOptions {
	o := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, DryRun: dryRun}
	if p == (clusterview.Preconditions{}) {
		return o
	}
	o.Preconditions = &metav1.Preconditions{}
	if p.UID != "" {
		o.Preconditions.UID = new(types.UID(p.UID))
	}
	if p.ResourceVersion != "" {
		o.Preconditions.ResourceVersion = &p.ResourceVersion
	}
	return o
}

// PatchObject changes an object, and returns it as it is stored.
func (c *Cluster) PatchObject(ctx context.Context, r clusterview.Resource, namespace, name string, kind clusterview.PatchKind, patch []byte) ([]byte, error) {
	q := c.core.RESTClient().Patch(types.PatchType(kind)).AbsPath(r.Path(namespace), name).Param("fieldValidation", metav1.FieldValidationStrict)
	return c.change(ctx, q, patch, string(kind), fmt.Sprintf("patch %s %s", r.Name, nameIn(namespace, name)))
}

// EvictPod asks for the end of a pod, as far as PodDisruptionBudgets allow it. A dry
// run ends nothing and counts against none of them.
func (c *Cluster) EvictPod(ctx context.Context, namespace, name, uid string, dryRun bool) error {
	what := fmt.Sprintf("evict pod %s", nameIn(namespace, name))
	pods := clusterview.Resource{Version: "v1", Name: "pods"}
	q := c.core.RESTClient().Post().AbsPath(pods.Path(namespace), name, "eviction")
	var dry []string
	if dryRun {
		dry, what = []string{metav1.DryRunAll}, what+" as a dry run"
		q = q.Param("dryRun", metav1.DryRunAll)
	}
	body, err := json.Marshal(&policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: name},
		DeleteOptions: deleteOptions(clusterview.Preconditions{UID: uid}, dry),
	})
	if err != nil {
		return err
	}
	_, err = c.change(ctx, q, body, jsonType, what)
	return err
}
