package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// completionPatience is for names of the cluster: the shell is still until then.
const completionPatience = 3 * time.Second

// completes says what a flag completes with. A flag without completes with files.
func completes(c *cobra.Command, flag string, with cobra.CompletionFunc) {
	_ = c.RegisterFlagCompletionFunc(flag, with) // it fails only for an unknown flag
}

func fixed(values []string) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// separated completes the last one of several values with commas between them.
func separated(one cobra.CompletionFunc) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		values, directive := one(c, args, typed[len(before):])
		all := make([]cobra.Completion, len(values))
		for i, value := range values {
			all[i] = before + value
		}
		return all, directive
	}
}

// A lister returns names of the cluster.
type lister func(context.Context, *objects.Client) ([]string, error)

// names completes with names of the cluster. It says no error: the shell would print it into the
// command line.
func (a *apiAccess) names(list lister) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionPatience)
		defer cancel()
		cluster, err := a.connect(kube.Options{UserAgent: "flex2csi-completion"})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found, _ := list(ctx, cluster.Objects())
		slices.Sort(found)
		return slices.Compact(found), cobra.ShellCompDirectiveNoFileComp
	}
}

// listed lists a name of each object of a kind; an empty one is none.
func listed[T any](kind objects.Kind[T], name func(*T) string) lister {
	return func(ctx context.Context, client *objects.Client) (found []string, err error) {
		all, err := kind.List(ctx, client, "", metav1.ListOptions{})
		for _, o := range all {
			if n := name(o); n != "" {
				found = append(found, n)
			}
		}
		return found, err
	}
}

func nodeNames() lister {
	return listed(objects.Nodes(), func(o *corev1.Node) string { return o.Name })
}

func namespaceNames() lister {
	return listed(objects.Namespaces(), func(o *corev1.Namespace) string { return o.Name })
}

// flexVolumes lists something of each PersistentVolume that is a FlexVolume.
func flexVolumes(name func(*corev1.PersistentVolume) string) lister {
	return listed(objects.PersistentVolumes(), func(o *corev1.PersistentVolume) string {
		if o.Spec.FlexVolume == nil {
			return ""
		}
		return name(o)
	})
}

func flexVolumeNames() lister {
	return flexVolumes(func(o *corev1.PersistentVolume) string { return o.Name })
}

func flexVolumeClaims() lister {
	return flexVolumes(func(o *corev1.PersistentVolume) string {
		if o.Spec.ClaimRef == nil {
			return ""
		}
		return o.Spec.ClaimRef.Namespace + "/" + o.Spec.ClaimRef.Name
	})
}

func flexDrivers() lister {
	return flexVolumes(func(o *corev1.PersistentVolume) string { return o.Spec.FlexVolume.Driver })
}

// migratedVolumes are those of the journal in the cluster.
func migratedVolumes(ctx context.Context, client *objects.Client) (found []string, err error) {
	records, err := journal.New(client, migrate.Namespace, "").List(ctx)
	for _, r := range records {
		found = append(found, r.Volume)
	}
	return found, err
}

// completeKubeconfig completes names in the kubeconfig.
func completeKubeconfig(c *cobra.Command, flags *genericclioptions.ConfigFlags) {
	with := func(names func(clientcmdapi.Config) []string) cobra.CompletionFunc {
		return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			raw, err := flags.ToRawKubeConfigLoader().RawConfig()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return names(raw), cobra.ShellCompDirectiveNoFileComp
		}
	}
	completes(c, "context", with(func(raw clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(raw.Contexts)) }))
	completes(c, "cluster", with(func(raw clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(raw.Clusters)) }))
	completes(c, "user", with(func(raw clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(raw.AuthInfos)) }))
}
