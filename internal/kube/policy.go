package kube

import (
	"context"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
)

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
		return "", wrapError(err, what)
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
	return "", wrapError(err, what)
}

// DeniesInline checks by a dry run whether a policy denies pods with an inline volume
// of a FlexVolume driver. It returns the policy's message; empty if none denies them.
// The same pod without the volume is tried as well: a policy that denies it says
// nothing of inline volumes.
func (c *Cluster) DeniesInline(ctx context.Context, flexDriver string) (says string, err error) {
	err = c.tryPod(ctx, corev1.Volume{Name: "inline", VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: flexDriver}}})
	switch {
	case err == nil:
		return "", nil
	case !byPolicy(err):
		return "", wrapError(err, "create a pod as a dry run")
	}
	if other := c.tryPod(ctx); other != nil {
		return "", wrapError(other, "create the same pod without the volume as a dry run")
	}
	return err.Error(), nil
}

func (c *Cluster) tryPod(ctx context.Context, volumes ...corev1.Volume) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "flex2csi-doctor-"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(bool),
			Containers:                   []corev1.Container{{Name: "none", Image: "none"}},
			Volumes:                      volumes,
		},
	}
	_, err := request(ctx, func(ctx context.Context) (*corev1.Pod, error) {
		return c.core.Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	})
	return err
}

// byPolicy reports whether a policy or a webhook, not RBAC, has denied a request
// (k8s.io/apiserver/pkg/admission/plugin: policy/validating/dispatcher.go,
// webhook/errors/statuserror.go, Kubernetes v1.37.1).
func byPolicy(err error) bool {
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		return false
	}
	return strings.Contains(err.Error(), "ValidatingAdmissionPolicy ") || strings.Contains(err.Error(), "admission webhook ")
}
