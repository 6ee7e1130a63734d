package kube

import (
	"context"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

type seenSecret struct {
	values map[string]flex.Secret
	when   time.Time
}

// secretFresh is how long an answer is used: pods that start at the same time share
// it, and a corrected Secret takes effect soon.
const secretFresh = 10 * time.Second

// Secret returns the values of a Secret. While the API server is unavailable it returns
// the cached ones.
func (c *Cluster) Secret(ctx context.Context, ref csivol.SecretRef) (map[string]flex.Secret, error) {
	cached, _ := c.secrets.Load(ref)
	known, ok := cached.(seenSecret)
	if ok && time.Since(known.when) < secretFresh {
		return maps.Clone(known.values), nil
	}
	o, err := get(ctx, c.core.Secrets(ref.Namespace), ref.Name)
	if err != nil {
		if ok && codeOf(err) == flex.CodeUnavailable {
			return maps.Clone(known.values), nil
		}
		if apierrors.IsNotFound(err) || codeOf(err) == flex.CodePermissionDenied {
			c.secrets.Delete(ref)
		}
		return nil, wrapError(err, "read Secret "+ref.Namespace+"/"+ref.Name)
	}
	known = seenSecret{map[string]flex.Secret{}, time.Now()}
	for key, value := range o.Data {
		known.values[key] = flex.NewSecret(value)
	}
	c.secrets.Store(ref, known)
	return maps.Clone(known.values), nil
}
