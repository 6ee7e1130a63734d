package bridge

import (
	"maps"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// tokensKey is that of the kubelet (pkg/volume/csi/csi_mounter.go,
// podServiceAccountTokenAttrs, Kubernetes v1.37.1).
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// forPod adds to the volume context and the secrets of NodePublishVolume what
// the driver wants to know of a pod. Nothing of it is recorded: tokens are
// secrets, wherever the driver wants them.
func (x *execution) forPod(pod csivol.Pod) (volumeContext map[string]string, secrets map[string]flex.Secret, err error) {
	volumeContext, secrets = x.v.record.Context, x.secrets.NodePublish
	if x.policy.PodInfo {
		volumeContext = withPodInfo(volumeContext, pod)
	}
	if len(x.policy.Tokens) == 0 || x.d.Tokens == nil {
		return volumeContext, secrets, nil
	}
	tokens, err := x.d.Tokens(x.v.ctx, pod, x.policy.Tokens)
	if err != nil {
		return nil, nil, err
	}
	if x.policy.TokensInSecrets {
		secrets = with(secrets, tokensKey, tokens)
	} else {
		volumeContext = with(volumeContext, tokensKey, string(tokens.Reveal()))
	}
	return volumeContext, secrets, nil
}

// withPodInfo adds what CSIDriver.spec.podInfoOnMount asks for
// (kubelet, pkg/volume/csi/csi_util.go, getPodInfoAttrs).
func withPodInfo(volumeContext map[string]string, pod csivol.Pod) map[string]string {
	all := map[string]string{}
	maps.Copy(all, volumeContext)
	maps.Copy(all, map[string]string{ // last: options do not speak for a pod
		"csi.storage.k8s.io/pod.name":            pod.Name,
		"csi.storage.k8s.io/pod.namespace":       pod.Namespace,
		"csi.storage.k8s.io/pod.uid":             pod.UID,
		"csi.storage.k8s.io/serviceAccount.name": pod.ServiceAccount,
		"csi.storage.k8s.io/ephemeral":           "false",
	})
	return all
}

// with returns a copy of a map that has one more entry.
func with[T any](m map[string]T, key string, value T) map[string]T {
	all := make(map[string]T, len(m)+1)
	maps.Copy(all, m)
	all[key] = value
	return all
}
