package kube

import (
	"context"
	"path"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// makeObjects makes the client for migrations. It retries no request that changes something, and
// leaves an API server without priority and fairness time for others.
func (c *Cluster) makeObjects(config *rest.Config) error {
	once := rest.CopyConfig(config)
	once.Timeout = 0 // it would end watches, too
	if c.options.QPS > 0 {
		once.QPS, once.Burst = c.options.QPS, c.options.Burst
	}
	once.Wrap(objects.WithoutRetries)
	transport, err := rest.HTTPClientFor(once)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfigAndClient(once, transport)
	if err != nil {
		return err
	}
	c.objects = &objects.Client{Dynamic: client, Raw: c.raw, Document: c.document, Timeout: config.Timeout}
	return nil
}

// Objects makes requests about objects of any kind, for migrations.
func (c *Cluster) Objects() *objects.Client { return c.objects }

// raw asks for an object as the JSON that the API server sends.
func (c *Cluster) raw(ctx context.Context, r schema.GroupVersionResource, namespace, name string) ([]byte, error) {
	prefix := path.Join("/apis", r.Group, r.Version)
	if r.Group == "" {
		prefix = path.Join("/api", r.Version)
	}
	return answer(ctx, c.core.RESTClient().Get().AbsPath(prefix).Resource(r.Resource).NamespaceIfScoped(namespace, namespace != "").Name(name))
}

// document asks for a path of discovery.
func (c *Cluster) document(ctx context.Context, path string) ([]byte, error) {
	return answer(ctx, c.core.RESTClient().Get().AbsPath(path))
}

func answer(ctx context.Context, q *rest.Request) ([]byte, error) {
	result := q.SetHeader("Accept", jsonType).Do(ctx)
	if err := result.Error(); err != nil { // unlike Raw, it has the API server's message
		return nil, err
	}
	return result.Raw()
}

const jsonType = "application/json"
