package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

type tokenKey struct {
	pod     csivol.Pod
	request csivol.TokenRequest
}

type seenToken struct {
	status  authenticationv1.TokenRequestStatus
	refresh time.Time
}

// Tokens returns the kubelet's value of csi.storage.k8s.io/serviceAccount.tokens: for
// each audience a token and its expiration, as JSON (pkg/volume/csi/csi_mounter.go,
// podServiceAccountTokenAttrs, Kubernetes v1.37.1). It is a secret.
func (c *Cluster) Tokens(ctx context.Context, pod csivol.Pod, requests []csivol.TokenRequest) (flex.Secret, error) {
	all := map[string]authenticationv1.TokenRequestStatus{}
	for _, r := range requests {
		status, err := c.token(ctx, pod, r)
		if err != nil {
			return flex.Secret{}, err
		}
		all[r.Audience] = status
	}
	text, err := json.Marshal(all)
	if err != nil {
		return flex.Secret{}, fmt.Errorf("write the tokens of service account %s/%s: %w", pod.Namespace, pod.ServiceAccount, err)
	}
	return flex.NewSecret(text), nil
}

// token returns a token that is valid for a while. If it cannot be renewed it is used
// until it expires.
func (c *Cluster) token(ctx context.Context, pod csivol.Pod, r csivol.TokenRequest) (authenticationv1.TokenRequestStatus, error) {
	key := tokenKey{pod, r}
	cached, _ := c.tokens.Get(key)
	known, ok := cached.(seenToken)
	now := time.Now()
	if ok && now.Before(known.refresh) {
		return known.status, nil
	}
	answer, err := c.requestToken(ctx, pod, r)
	switch {
	case err == nil:
		c.tokens.Set(key, seenToken{answer.Status, refreshAt(now, answer)}, answer.Status.ExpirationTimestamp.Sub(now))
		return answer.Status, nil
	case ok:
		return known.status, nil
	}
	return authenticationv1.TokenRequestStatus{}, wrapError(err, fmt.Sprintf("request a token of service account %s/%s for pod %s", pod.Namespace, pod.ServiceAccount, pod.Name))
}

func (c *Cluster) requestToken(ctx context.Context, pod csivol.Pod, r csivol.TokenRequest) (*authenticationv1.TokenRequest, error) {
	want := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:      []string{},
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: types.UID(pod.UID)},
	}}
	if r.Audience != "" {
		want.Spec.Audiences = []string{r.Audience}
	}
	if r.Expiration > 0 {
		seconds := int64(r.Expiration / time.Second)
		want.Spec.ExpirationSeconds = &seconds
	}
	return request(ctx, func(ctx context.Context) (*authenticationv1.TokenRequest, error) {
		return c.core.ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.ServiceAccount, want, metav1.CreateOptions{})
	})
}

// refreshAt returns when to renew a token: after 80 % of its life or a day, minus some
// jitter so that not all are renewed at once
// (pkg/kubelet/token/token_manager.go, requiresRefresh).
func refreshAt(now time.Time, t *authenticationv1.TokenRequest) time.Time {
	const longest, jitter = 24 * time.Hour, 10 * time.Second
	life := t.Status.ExpirationTimestamp.Sub(now)
	return now.Add(min(life*8/10, longest) - rand.N(jitter))
}
