package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// ownNamespace is the namespace of flex2csi.
type ownNamespace string

func (n *ownNamespace) add(c *cobra.Command, api *apiAccess) {
	c.Flags().StringVar((*string)(n), "flex2csi-namespace", migrate.Namespace, "`namespace` of flex2csi, of its DaemonSet and its journal")
	completes(c, "flex2csi-namespace", api.names(namespaceNames()))
}

// journal returns that of the cluster; copies is the directory of its copies.
func (n ownNamespace) journal(c *kube.Cluster, copies string) *journal.Journal {
	return journal.New(c.Objects(), string(n), copies)
}

// namespaceOptions select volumes by the namespaces of their claims and pods; without any
// they are those of all namespaces.
type namespaceOptions struct{ namespaces []string }

func (o *namespaceOptions) add(c *cobra.Command, api *apiAccess) {
	c.Flags().StringSliceVarP(&o.namespaces, "namespace", "n", nil, "only volumes of these `namespaces`")
	completes(c, "namespace", separated(api.names(namespaceNames())))
}

// without reports whether a claim, namespace/name, is not selected.
func (o *namespaceOptions) without(claim string) bool {
	namespace, _, _ := strings.Cut(claim, "/")
	return len(o.namespaces) > 0 && !slices.Contains(o.namespaces, namespace)
}
