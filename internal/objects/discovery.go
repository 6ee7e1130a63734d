package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resources returns the resources of the API server that can be listed and are wanted, each in
// one version. A group is asked for without a resource first. Problems are groups about which the API server says nothing, for example since
// the program behind an APIService does not answer.
func (c *Client) Resources(ctx context.Context, wanted func(schema.GroupResource) bool) (all []schema.GroupVersionResource, problems []string) {
	if c.Document == nil {
		return nil, nil
	}
	var groups metav1.APIGroupList
	if err := c.document(ctx, "/apis", &groups); err != nil {
		return nil, []string{err.Error()}
	}
	paths := []string{"/api/v1"}
	for _, g := range groups.Groups {
		if !wanted(schema.GroupResource{Group: g.Name}) {
			continue
		}
		paths = append(paths, "/apis/"+g.PreferredVersion.GroupVersion) // the first one counts
		for _, v := range g.Versions {
			if v != g.PreferredVersion {
				paths = append(paths, "/apis/"+v.GroupVersion)
			}
		}
	}
	seen := map[schema.GroupResource]bool{}
	for _, path := range paths {
		var list metav1.APIResourceList
		if err := c.document(ctx, path, &list); err != nil {
			problems = append(problems, err.Error())
			continue
		}
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		for _, r := range list.APIResources {
			resource := version.WithResource(r.Name)
			if err == nil && slices.Contains(r.Verbs, "list") && !strings.Contains(r.Name, "/") && wanted(resource.GroupResource()) && !seen[resource.GroupResource()] {
				seen[resource.GroupResource()] = true
				all = append(all, resource)
			}
		}
	}
	return all, problems
}

func (c *Client) document(ctx context.Context, path string, to any) error {
	text, err := request(ctx, c, "get "+path, func(ctx context.Context) ([]byte, error) { return c.Document(ctx, path) })
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	return nil
}
