package kube

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationv1client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
)

// User asks the API server for this program's user.
func (c *Cluster) User(ctx context.Context) (authenticationv1.UserInfo, error) {
	const what = "ask the API server which user this is"
	client, err := authenticationv1client.NewForConfig(c.config)
	if err != nil {
		return authenticationv1.UserInfo{}, failed(err, what)
	}
	review, err := request(ctx, func(ctx context.Context) (*authenticationv1.SelfSubjectReview, error) {
		return client.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	})
	if err != nil {
		return authenticationv1.UserInfo{}, failed(err, what)
	}
	return review.Status.UserInfo, nil
}

// DeniesAttachment checks by a dry run whether a policy denies a VolumeAttachment. As
// is the user to impersonate; without a name it is the program's own user. It returns
// the policy's message; empty if none denies it. The error is the API server's
// Forbidden if the user may not create VolumeAttachments.
func (c *Cluster) DeniesAttachment(ctx context.Context, as authenticationv1.UserInfo, o *storagev1.VolumeAttachment) (says string, err error) {
	const what = "create a VolumeAttachment as a dry run"
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: as.Username, Extra: map[string][]string{}}
	for key, values := range as.Extra {
		config.Impersonate.Extra[key] = values
	}
	client, err := storagev1client.NewForConfig(config)
	if err != nil {
		return "", failed(err, what)
	}
	_, err = request(ctx, func(ctx context.Context) (*storagev1.VolumeAttachment, error) {
		return client.VolumeAttachments().Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	})
	switch {
	case err == nil:
		return "", nil
	case byPolicy(err):
		return err.Error(), nil
	}
	return "", failed(err, what)
}
