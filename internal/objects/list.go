package objects

import (
	"cmp"
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// pageSize keeps answers small where there are thousands of objects.
const pageSize = 500

// List returns all objects that are selected, asked for page by page.
func (c *Client) List(ctx context.Context, r schema.GroupVersionResource, namespace string, o metav1.ListOptions) (all []*unstructured.Unstructured, err error) {
	err = c.Each(ctx, r, namespace, o, func(object *unstructured.Unstructured) error {
		all = append(all, object)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Each calls do with each object that is selected, and has one page of them in memory.
func (c *Client) Each(ctx context.Context, r schema.GroupVersionResource, namespace string, o metav1.ListOptions, do func(*unstructured.Unstructured) error) error {
	_, err := c.each(ctx, r, namespace, o, do)
	return err
}

// each returns the resourceVersion of the first page as well.
func (c *Client) each(ctx context.Context, r schema.GroupVersionResource, namespace string, o metav1.ListOptions, do func(*unstructured.Unstructured) error) (version string, err error) {
	o.Limit = pageSize
	for {
		page, err := request(ctx, c, "list "+r.Resource, func(ctx context.Context) (*unstructured.UnstructuredList, error) {
			return c.resource(r, namespace).List(ctx, o)
		})
		if err != nil {
			return "", err
		}
		version = cmp.Or(version, page.GetResourceVersion())
		for i := range page.Items {
			if err := do(&page.Items[i]); err != nil {
				return "", err
			}
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return version, nil
		}
	}
}
