package kube

import (
	"context"
	"encoding/json"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/flex2csi/flex2csi/internal/kubelet"
)

// Version asks for the API server's version.
func (c *Cluster) Version(ctx context.Context) (string, error) {
	data, err := request(ctx, func(ctx context.Context) ([]byte, error) {
		return c.core.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	})
	if err != nil {
		return "", wrapError(err, "ask the API server for its version")
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return "", fmt.Errorf("ask the API server for its version: %w", err)
	}
	return v.GitVersion, nil
}

// ListDrivers asks for all CSIDriver objects; CSIDriver takes them from an informer.
func (c *Cluster) ListDrivers(ctx context.Context) (all []storagev1.CSIDriver, err error) {
	err = listEach(ctx, "list CSIDrivers", metav1.ListOptions{}, c.storage.CSIDrivers().List, func(o *storagev1.CSIDriver) {
		all = append(all, *o)
	})
	return all, err
}

// NodeDrivers asks for the CSI drivers that are registered on a node.
func (c *Cluster) NodeDrivers(ctx context.Context, node string) ([]storagev1.CSINodeDriver, error) {
	o, err := get(ctx, c.storage.CSINodes(), node)
	if o, err = orNone(o, err, "look at CSINode "+node); o == nil {
		return nil, err
	}
	return o.Spec.Drivers, nil
}

// Kubelet asks a kubelet for its current configuration (configz). That needs the right
// to get nodes/proxy, which only administrators should have.
func (c *Cluster) Kubelet(ctx context.Context, node string) (kubelet.Configuration, error) {
	what := "ask the kubelet of node " + node + " for its configuration"
	data, err := request(ctx, func(ctx context.Context) ([]byte, error) {
		return c.core.RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("configz").Do(ctx).Raw()
	})
	if err != nil {
		return kubelet.Configuration{}, wrapError(err, what)
	}
	var answer struct {
		Kubelet kubelet.Configuration `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return kubelet.Configuration{}, fmt.Errorf("%s: %w", what, err)
	}
	return answer.Kubelet, nil
}

// User asks the API server for this program's user.
func (c *Cluster) User(ctx context.Context) (authenticationv1.UserInfo, error) {
	const what = "ask the API server which user this is"
	client, err := authenticationv1client.NewForConfig(c.config)
	if err != nil {
		return authenticationv1.UserInfo{}, wrapError(err, what)
	}
	review, err := request(ctx, func(ctx context.Context) (*authenticationv1.SelfSubjectReview, error) {
		return client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	})
	if err != nil {
		return authenticationv1.UserInfo{}, wrapError(err, what)
	}
	return review.Status.UserInfo, nil
}
