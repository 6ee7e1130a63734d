package kube

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DeniesInline checks by a dry run whether a policy denies pods with an inline volume
// of a FlexVolume driver. It returns the policy's message; empty if none denies them.
func (c *Cluster) DeniesInline(ctx context.Context, flexDriver string) (says string, err error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "flex2csi-doctor-"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: new(bool),
			Containers:                   []corev1.Container{{Name: "none", Image: "none"}},
			Volumes: []corev1.Volume{{Name: "inline", VolumeSource: corev1.VolumeSource{
				FlexVolume: &corev1.FlexVolumeSource{Driver: flexDriver},
			}}},
		},
	}
	_, err = request(ctx, func(ctx context.Context) (*corev1.Pod, error) {
		return c.core.Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	})
	switch {
	case err == nil:
		return "", nil
	case byPolicy(err):
		return err.Error(), nil
	}
	return "", failed(err, "create a pod as a dry run")
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
