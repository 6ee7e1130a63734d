package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/clusterview"
	"github.com/flex2csi/flex2csi/internal/csivol"
)

// User asks who this program is to the API server.
func (c *Cluster) User(ctx context.Context) (clusterview.User, error) {
	const what = "ask the API server which user this is"
	body, err := json.Marshal(&authenticationv1.SelfSubjectReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectReview"},
	})
	if err != nil {
		return clusterview.User{}, err
	}
	reviews := clusterview.Resource{Group: authenticationv1.GroupName, Version: "v1", Name: "selfsubjectreviews"}
	answer, err := c.do(ctx, c.core.RESTClient().Post().AbsPath(reviews.Path("")).SetHeader("Content-Type", jsonType).Body(body))
	if err != nil {
		return clusterview.User{}, answered(err, what)
	}
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal(answer, &review); err != nil {
		return clusterview.User{}, fmt.Errorf("%s: %w", what, err)
	}
	user := clusterview.User{Name: review.Status.UserInfo.Username}
	if node := review.Status.UserInfo.Extra[nodeNameExtra]; len(node) > 0 {
		user.Node = node[0]
	}
	return user, nil
}

// nodeNameExtra is where the API server keeps the node that a token is bound to
// (k8s.io/apiserver/pkg/authentication/serviceaccount/util.go, NodeNameKey).
const nodeNameExtra = "authentication.kubernetes.io/node-name"

// DeniesAttachment asks whether a policy denies an attachment, by its dry run. The
// answer is what the policy says; empty if none denies it. The error is
// [clusterview.ErrNoRight] if the user may create none.
func (c *Cluster) DeniesAttachment(ctx context.Context, a clusterview.Attempt) (says string, err error) {
	o := newObject(&csivol.Attachment{Driver: a.Driver, Node: a.Node, Handle: "flex2csi-doctor", AccessModes: []csivol.AccessMode{csivol.ReadWriteOnce}}, a.By)
	o.TypeMeta = metav1.TypeMeta{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "VolumeAttachment"}
	if a.Unmarked {
		delete(o.Labels, attachment.ManagedByLabel)
	}
	body, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	attachments := clusterview.Resource{Group: storagev1.GroupName, Version: "v1", Name: "volumeattachments"}
	q := c.core.RESTClient().Post().AbsPath(attachments.Path("")).Param("dryRun", metav1.DryRunAll).SetHeader("Content-Type", jsonType).Body(body)
	if a.As.Name != "" {
		// A / is escaped (https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/).
		q.SetHeader("Impersonate-User", a.As.Name).SetHeader("Impersonate-Extra-authentication.kubernetes.io%2fnode-name", a.As.Node)
	}
	_, err = c.do(ctx, q)
	switch {
	case err == nil:
		return "", nil
	case byPolicy(err):
		return err.Error(), nil
	case apierrors.IsForbidden(err) && isAboutAny(err, attachments.Name):
		return "", clusterview.ErrNoRight
	}
	return "", failed(err, "create a VolumeAttachment as a dry run")
}

// isAboutAny reports whether an error is about objects of a kind, and not, for example,
// about the right to impersonate a user.
func isAboutAny(err error, resource string) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == resource
}
