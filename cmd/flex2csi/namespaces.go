package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// namespaceOptions are -n and -A of kubectl, for volumes by the namespaces of
// their claims and pods.
type namespaceOptions struct {
	namespaces []string
	all        bool
}

func (o *namespaceOptions) add(c *cobra.Command, all string) {
	c.Flags().StringSliceVarP(&o.namespaces, "namespace", "n", nil, "only volumes of these `namespaces`")
	c.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, all)
	c.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

// without reports whether a claim, namespace/name, is not selected.
func (o *namespaceOptions) without(claim string) bool {
	namespace, _, _ := strings.Cut(claim, "/")
	return len(o.namespaces) > 0 && !slices.Contains(o.namespaces, namespace)
}
