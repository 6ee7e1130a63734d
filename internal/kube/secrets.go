package kube

import (
	"context"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// secrets caches Secrets in memory only: as many as the configuration names.
type secrets struct {
	mu   sync.Mutex
	seen map[csivol.SecretRef]seenSecret
}

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
	c.secrets.mu.Lock()
	known, ok := c.secrets.seen[ref]
	c.secrets.mu.Unlock()
	if ok && time.Since(known.when) < secretFresh {
		return maps.Clone(known.values), nil
	}
	o, err := get(ctx, c.core.Secrets(ref.Namespace), ref.Name)
	if err != nil {
		if ok && codeOf(err) == flex.CodeUnavailable {
			return maps.Clone(known.values), nil
		}
		if apierrors.IsNotFound(err) || codeOf(err) == flex.CodePermissionDenied {
			c.secrets.forget(ref)
		}
		return nil, failed(err, "read Secret "+ref.Namespace+"/"+ref.Name)
	}
	known = seenSecret{map[string]flex.Secret{}, time.Now()}
	for key, value := range o.Data {
		known.values[key] = flex.NewSecret(value)
	}
	c.secrets.put(ref, known)
	return maps.Clone(known.values), nil
}

func (s *secrets) forget(ref csivol.SecretRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, ref)
}

func (s *secrets) put(ref csivol.SecretRef, known seenSecret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[csivol.SecretRef]seenSecret{}
	}
	s.seen[ref] = known
}
