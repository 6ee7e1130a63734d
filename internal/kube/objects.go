package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/flex2csi/flex2csi/internal/clusterview"
)

// What follows gives objects as the JSON that the API server sends. Who
// replaces an object has to keep fields that this version of the API's types
// does not know, and a back-up of it has to be the object and not what these
// types make of it.

const jsonType = "application/json"

// do makes one request about objects. An error is the API's own.
func (c *Cluster) do(ctx context.Context, q *rest.Request) ([]byte, error) {
	return request(ctx, func(ctx context.Context) ([]byte, error) {
		result := q.SetHeader("Accept", jsonType).Do(ctx)
		if err := result.Error(); err != nil { // which, unlike Raw, reads what the API server says
			return nil, err
		}
		return result.Raw()
	})
}

// GetObject asks for an object; nil if there is none.
func (c *Cluster) GetObject(ctx context.Context, r clusterview.Resource, namespace, name string) ([]byte, error) {
	data, err := c.do(ctx, c.core.RESTClient().Get().AbsPath(r.Path(namespace), name))
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, answered(err, fmt.Sprintf("look at %s %s", r.Name, nameIn(namespace, name)))
	}
	return data, nil
}

func nameIn(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// ListObjects asks for all that are selected, piece by piece. The objects of a
// list do not say their kind and version, and are given both.
func (c *Cluster) ListObjects(ctx context.Context, r clusterview.Resource, s clusterview.Selector) (all [][]byte, err error) {
	for next := ""; ; {
		q := c.core.RESTClient().Get().AbsPath(r.Path(s.Namespace)).Param("limit", fmt.Sprint(pageSize))
		for name, value := range map[string]string{"labelSelector": s.Labels, "fieldSelector": s.Fields, "continue": next} {
			if value != "" {
				q = q.Param(name, value)
			}
		}
		data, err := c.do(ctx, q)
		if err != nil {
			return nil, answered(err, "list "+r.Name)
		}
		var list struct {
			APIVersion string                       `json:"apiVersion"`
			Kind       string                       `json:"kind"`
			Metadata   metav1.ListMeta              `json:"metadata"`
			Items      []map[string]json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(data, &list); err != nil {
			return nil, fmt.Errorf("list %s: %w", r.Name, err)
		}
		for _, item := range list.Items {
			object, err := withKind(item, list.APIVersion, list.Kind)
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			all = append(all, object)
		}
		if next = list.Metadata.Continue; next == "" {
			return all, nil
		}
	}
}

// withKind gives an item of a list what the list says for all of them.
func withKind(item map[string]json.RawMessage, version, listKind string) ([]byte, error) {
	const list = "List"
	kind := listKind
	if len(kind) > len(list) {
		kind = kind[:len(kind)-len(list)]
	}
	for field, value := range map[string]string{"apiVersion": version, "kind": kind} {
		if _, ok := item[field]; ok {
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		item[field] = text
	}
	return json.Marshal(item)
}

// DryRunCreate has the API server do all that it does to create an object, with
// admission plugins, policies and webhooks, and keep nothing. stored is the
// object as it would be.
//
// The name is looked at last, when the object has been accepted
// (k8s.io/apiserver/pkg/registry/generic/registry/store.go, create, Kubernetes
// v1.37.1): exists says that nothing but the name stands in the way.
func (c *Cluster) DryRunCreate(ctx context.Context, r clusterview.Resource, namespace, name string, object []byte) (stored []byte, exists bool, err error) {
	stored, err = c.do(ctx, c.core.RESTClient().Post().AbsPath(r.Path(namespace)).
		Param("dryRun", metav1.DryRunAll).Param("fieldValidation", metav1.FieldValidationStrict).
		SetHeader("Content-Type", jsonType).Body(object))
	if apierrors.IsAlreadyExists(err) && isAbout(err, r.Name, name) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, answered(err, fmt.Sprintf("create %s %s as a dry run", r.Name, nameIn(namespace, name)))
	}
	return stored, false, nil
}

// isAbout reports whether an error is about an object: a webhook may say of
// another one that it exists.
func isAbout(err error, resource, name string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Kind == resource && details.Name == name
}

// May asks whether whoever this program is may do something.
func (c *Cluster) May(ctx context.Context, a clusterview.Access) (bool, error) {
	resource, sub, _ := strings.Cut(a.Resource, "/")
	body, err := json.Marshal(&authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: a.Verb, Group: a.Group, Resource: resource, Subresource: sub, Namespace: a.Namespace, Name: a.Name,
		}},
	})
	if err != nil {
		return false, err
	}
	reviews := clusterview.Resource{Group: authorizationv1.GroupName, Version: "v1", Name: "selfsubjectaccessreviews"}
	answer, err := c.do(ctx, c.core.RESTClient().Post().AbsPath(reviews.Path("")).SetHeader("Content-Type", jsonType).Body(body))
	if err != nil {
		return false, answered(err, "ask whether this user may "+a.String())
	}
	var review authorizationv1.SelfSubjectAccessReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return false, fmt.Errorf("ask whether this user may %s: %w", a, err)
	}
	return review.Status.Allowed, nil
}
