// Package objects makes requests about objects of the API server: one
// request for each call, with a deadline, by client-go's dynamic client. Objects that are
// written are unstructured, so that they keep fields that this program does not know; what
// is only read has the types of k8s.io/api ([Kind]). Errors are apimachinery's, and
// [OutcomeOf] sorts them.
//
// It also has what objects say, for all that read them: of nodes, pods and claims
// (kubeobject.go), of flex2csi's VolumeAttachments (attachment.go), of StorageClasses that make
// FlexVolumes (flexclass.go), and where any object has a FlexVolume (walk.go).
package objects

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

const (
	// RequestTimeout bounds a single request: it is answered from the memory of the API
	// server or by a write to etcd.
	RequestTimeout = 10 * time.Second
	// patience is as long as an API server takes for a request at most: its own
	// --request-timeout is 60 s, and webhooks may take half of that each.
	patience = 65 * time.Second
	// watchFor is after how long the API server ends a watch of one object.
	watchFor = 5 * time.Minute
)

// A Client makes requests. Its errors say what was to be done, and wrap apimachinery's.
type Client struct {
	// Dynamic makes them. One for an API server must not repeat a request that changes
	// something ([WithoutRetries]).
	Dynamic dynamic.Interface
	// Raw returns an object as the bytes that the API server sends.
	Raw func(ctx context.Context, r schema.GroupVersionResource, namespace, name string) ([]byte, error)
	// Document returns what the API server says at a path of discovery; nil: nothing.
	Document func(ctx context.Context, path string) ([]byte, error)
	// Requests counts them; nil: nothing does.
	Requests *atomic.Int64
	// Timeout bounds a single request; zero: RequestTimeout.
	Timeout time.Duration
}

// Patient returns a client that waits until an API server that is slow has its answer: one that
// it ends with the connection never comes to an end, however often it is repeated.
func (c *Client) Patient() *Client {
	patient := *c
	patient.Timeout = max(patience, c.Timeout)
	return &patient
}

// Counting returns a client that counts its requests from n on.
func (c *Client) Counting(n int) *Client {
	counting := *c
	counting.Requests = &atomic.Int64{}
	counting.Requests.Store(int64(n))
	return &counting
}

func (c *Client) resource(r schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.Dynamic.Resource(r)
	}
	return c.Dynamic.Resource(r).Namespace(namespace)
}

// request gives a request its deadline, and its error what it was to do.
func request[T any](ctx context.Context, c *Client, what string, do func(context.Context) (T, error)) (T, error) {
	if c.Requests != nil {
		c.Requests.Add(1)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, RequestTimeout))
	defer cancel()
	answer, err := do(ctx)
	if err != nil {
		return answer, &requestError{what, err}
	}
	return answer, nil
}

func about(verb string, r schema.GroupVersionResource, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return verb + " " + r.Resource + " " + name
}

// Get returns an object; nil if there is none.
func (c *Client) Get(ctx context.Context, r schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	o, err := request(ctx, c, about("get", r, namespace, name), func(ctx context.Context) (*unstructured.Unstructured, error) {
		return c.resource(r, namespace).Get(ctx, name, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	return o, err
}

// GetRaw returns an object as the API server has sent it; nil if there is none.
func (c *Client) GetRaw(ctx context.Context, r schema.GroupVersionResource, namespace, name string) ([]byte, error) {
	raw, err := request(ctx, c, about("get", r, namespace, name), func(ctx context.Context) ([]byte, error) {
		return c.Raw(ctx, r, namespace, name)
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return raw, err
}

// Create creates an object, and returns it as it is stored. A field that the API server
// does not know is an error.
func (c *Client) Create(ctx context.Context, r schema.GroupVersionResource, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	what := about("create", r, object.GetNamespace(), object.GetName())
	stored, err := c.create(ctx, what, r, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
	if apierrors.IsAlreadyExists(err) && !isAbout(err, r.Resource, object.GetName()) { // so says a webhook, of another object
		return nil, &requestError{about("create", r, object.GetNamespace(), object.GetName()), refusal{errors.Unwrap(err).Error()}}
	}
	return stored, err
}

func (c *Client) create(ctx context.Context, what string, r schema.GroupVersionResource, object *unstructured.Unstructured, o metav1.CreateOptions, subresource ...string) (*unstructured.Unstructured, error) {
	return request(ctx, c, what, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return c.resource(r, object.GetNamespace()).Create(ctx, object, o, subresource...)
	})
}

// Update writes an object over the one with the same resourceVersion.
func (c *Client) Update(ctx context.Context, r schema.GroupVersionResource, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return request(ctx, c, about("update", r, object.GetNamespace(), object.GetName()), func(ctx context.Context) (*unstructured.Unstructured, error) {
		return c.resource(r, object.GetNamespace()).Update(ctx, object, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	})
}

// DryRunCreate has the API server do all that it does to create an object, with admission
// plugins, policies and webhooks, and keep nothing. It returns the object as it would be
// stored.
//
// The name is looked at last, when the object has been accepted
// (k8s.io/apiserver/pkg/registry/generic/registry/store.go, create, Kubernetes v1.37.1):
// exists says that nothing but the name stands in the way.
func (c *Client) DryRunCreate(ctx context.Context, r schema.GroupVersionResource, object *unstructured.Unstructured) (stored *unstructured.Unstructured, exists bool, err error) {
	what := about("create", r, object.GetNamespace(), object.GetName()) + " as a dry run"
	stored, err = c.create(ctx, what, r, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	if apierrors.IsAlreadyExists(err) && isAbout(err, r.Resource, object.GetName()) {
		return nil, true, nil
	}
	return stored, false, err
}

// DryRunDelete has the API server do all that it does to delete the object with a UID, with
// admission plugins, policies and webhooks, and keep it.
func (c *Client) DryRunDelete(ctx context.Context, r schema.GroupVersionResource, namespace, name string, uid types.UID) error {
	_, err := request(ctx, c, about("delete", r, namespace, name)+" as a dry run", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.resource(r, namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, DryRun: []string{metav1.DryRunAll}})
	})
	return err
}

// DryRunPatch does the same for a patch.
func (c *Client) DryRunPatch(ctx context.Context, r schema.GroupVersionResource, namespace, name string, kind types.PatchType, patch []byte) error {
	_, err := request(ctx, c, about("patch", r, namespace, name)+" as a dry run", func(ctx context.Context) (*unstructured.Unstructured, error) {
		return c.resource(r, namespace).Patch(ctx, name, kind, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	})
	return err
}

// Delete asks for the end of the object that fits the preconditions. It is there until its
// last finalizer is removed.
func (c *Client) Delete(ctx context.Context, r schema.GroupVersionResource, namespace, name string, p metav1.Preconditions) error {
	_, err := request(ctx, c, about("delete", r, namespace, name), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.resource(r, namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &p})
	})
	return err
}

// Patch changes an object, and returns it as it is stored. A merge patch with another
// metadata.uid or resourceVersion, and a JSON patch of which a test fails, is a [Conflict].
func (c *Client) Patch(ctx context.Context, r schema.GroupVersionResource, namespace, name string, kind types.PatchType, patch []byte) (*unstructured.Unstructured, error) {
	return request(ctx, c, about("patch", r, namespace, name), func(ctx context.Context) (*unstructured.Unstructured, error) {
		return c.resource(r, namespace).Patch(ctx, name, kind, patch, metav1.PatchOptions{FieldValidation: metav1.FieldValidationStrict})
	})
}

// Evict asks for the end of the pod with a UID, as far as PodDisruptionBudgets allow it. A
// dry run ends nothing and counts against none of them.
func (c *Client) Evict(ctx context.Context, namespace, name string, uid types.UID, dryRun bool) error {
	what, dry := "evict pod "+namespace+"/"+name, []string(nil)
	if dryRun {
		what, dry = what+" as a dry run", []string{metav1.DryRunAll}
	}
	eviction, err := ToUnstructured(&policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, DryRun: dry},
	})
	if err != nil {
		return err
	}
	_, err = c.create(ctx, what, Pods().Resource, eviction, metav1.CreateOptions{DryRun: dry}, "eviction")
	return err
}

// May asks whether this user may do something.
func (c *Client) May(ctx context.Context, a authorizationv1.ResourceAttributes) (bool, error) {
	what := "ask whether this user may " + AccessText(a)
	review, err := ToUnstructured(&authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec:     authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a},
	})
	if err != nil {
		return false, err
	}
	answer, err := c.create(ctx, what, authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews"), review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	allowed, _, err := unstructured.NestedBool(answer.Object, "status", "allowed")
	return allowed, err
}

// AccessText is for people: get secrets in default.
func AccessText(a authorizationv1.ResourceAttributes) string {
	text := a.Verb + " " + a.Resource
	if a.Subresource != "" {
		text += "/" + a.Subresource
	}
	if a.Group != "" {
		text += "." + a.Group
	}
	if a.Name != "" {
		text += "/" + a.Name
	}
	if a.Namespace != "" {
		text += " in " + a.Namespace
	}
	return text
}

// Watch tells what an object is, if it is there, and then each change of it; since a
// resourceVersion, if one is given, only the changes. The channel is
// closed when the watch has ended, as each does after a while: the caller looks again. One that
// has failed has [watch.Error] as its last event. It ends with ctx.
func (c *Client) Watch(ctx context.Context, r schema.GroupVersionResource, namespace, name, since string) (<-chan watch.Event, error) {
	if c.Requests != nil {
		c.Requests.Add(1)
	}
	w, err := c.watch(ctx, r, namespace, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(), TimeoutSeconds: new(int64(watchFor.Seconds())), ResourceVersion: since,
	})
	if err != nil {
		return nil, &requestError{about("watch", r, namespace, name), err}
	}
	return w.ResultChan(), nil
}

// watch opens a watch, which takes no longer than another request. It ends with ctx.
func (c *Client) watch(ctx context.Context, r schema.GroupVersionResource, namespace string, o metav1.ListOptions) (watch.Interface, error) {
	ctx, end := context.WithCancelCause(ctx)
	opening := time.AfterFunc(cmp.Or(c.Timeout, RequestTimeout), func() { end(context.DeadlineExceeded) })
	w, err := c.resource(r, namespace).Watch(ctx, o)
	if !opening.Stop() && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		err = context.DeadlineExceeded
		if w != nil {
			w.Stop()
		}
	}
	if err != nil {
		end(err)
		return nil, err
	}
	context.AfterFunc(ctx, w.Stop)
	return openWatch{w, end}, nil
}

// An openWatch ends its context, too.
type openWatch struct {
	watch.Interface
	end context.CancelCauseFunc
}

func (w openWatch) Stop() { w.end(nil) }
