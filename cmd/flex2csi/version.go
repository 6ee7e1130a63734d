package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/internal/report"
	"github.com/flex2csi/flex2csi/internal/version"
)

// versionOptions are the flags of version.
type versionOptions struct {
	api    apiAccess
	client bool
	format outputFormat
}

func newVersion() *cobra.Command {
	o := versionOptions{format: outputFormat{formats: []string{table, asJSON, asYAML}}}
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of what runs in the cluster",
		Long: `Print the version of this program, and those of the daemons and controllers in the
cluster: what a daemon reports, or else the tag of its image. It needs no cluster:
what cannot be read is unknown.`,
		Args: noArguments,
		RunE: o.print,
	}
	c.Flags().BoolVar(&o.client, "client", false, "print only the version of this program")
	o.format.add(c)
	o.api.add(c)
	return c
}

func (o *versionOptions) print(c *cobra.Command, _ []string) error {
	v := versions{Info: version.Get()}
	if !o.client {
		ctx, stop := untilInterrupted(c)
		defer stop()
		v.Cluster = o.cluster(ctx)
	}
	return o.format.print(streams(c).out, &v, v.show)
}

// versions is the document of version.
type versions struct {
	version.Info
	Cluster *clusterVersions `json:"cluster,omitempty"`
}

// clusterVersions are those of the pods in the cluster.
type clusterVersions struct {
	Daemons     []podVersion `json:"daemons"`
	Controllers []podVersion `json:"controllers"`
	// Unknown is why they could not be read.
	Unknown string `json:"unknown,omitempty"`
}

type podVersion struct {
	Pod     string `json:"pod"` // namespace/name
	Node    string `json:"node"`
	Image   string `json:"image"`
	Version string `json:"version"`
}

// versionPatience is for all that is asked.
const versionPatience = 5 * time.Second

const unknown = "unknown"

func (o *versionOptions) cluster(ctx context.Context) *clusterVersions {
	ctx, cancel := context.WithTimeout(ctx, versionPatience)
	defer cancel()
	found := &clusterVersions{Daemons: []podVersion{}, Controllers: []podVersion{}}
	cluster, err := o.api.connect(kube.Options{})
	if err == nil {
		err = found.read(ctx, cluster.Objects())
	}
	if err != nil {
		found.Unknown = err.Error()
	}
	return found
}

// read finds the pods by their labels, whatever their namespace is.
func (v *clusterVersions) read(ctx context.Context, client *objects.Client) error {
	pods, err := objects.Pods().List(ctx, client, "", metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=flex2csi"})
	if err != nil {
		return err
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Spec.NodeName, b.Spec.NodeName), cmp.Compare(a.Name, b.Name))
	})
	// Not every user may read them. Then the images say it.
	reported, _ := objects.ConfigMaps().List(ctx, client, bridgestatus.Namespace, metav1.ListOptions{})
	byNode := map[string]string{}
	for _, m := range reported {
		if d, err := bridgestatus.DecodeNodeVolumes(m.Data[bridgestatus.Key]); err == nil {
			byNode[d.Node] = d.Version
		}
	}
	for _, pod := range pods {
		found := podVersion{Pod: pod.Namespace + "/" + pod.Name, Node: pod.Spec.NodeName, Image: image(pod)}
		switch pod.Labels["app.kubernetes.io/component"] {
		case "node":
			found.Version = cmp.Or(byNode[found.Node], tag(found.Image))
			v.Daemons = append(v.Daemons, found)
		case "controller":
			found.Version = tag(found.Image)
			v.Controllers = append(v.Controllers, found)
		}
	}
	return nil
}

// image returns that of flex2csi in a pod, which may have others.
func image(pod *corev1.Pod) string {
	for _, c := range pod.Spec.Containers {
		if c.Name == "serve" || c.Name == "controller" {
			return c.Image
		}
	}
	return ""
}

// tag returns that of an image.
func tag(image string) string {
	name, _, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], "@")
	_, tag, _ := strings.Cut(name, ":")
	return cmp.Or(tag, unknown)
}

// show makes a line for this program, and for each version in the cluster.
func (v *versions) show(report.View) *report.Report {
	texts := []string{v.Text("flex2csi")}
	switch {
	case v.Cluster == nil:
	case v.Cluster.Unknown != "":
		texts = append(texts, "daemons and controllers: unknown: "+v.Cluster.Unknown)
	default:
		texts = append(texts, lines("daemon", v.Cluster.Daemons, func(p podVersion) string { return p.Node })...)
		texts = append(texts, lines("controller", v.Cluster.Controllers, func(p podVersion) string { return p.Pod })...)
	}
	return &report.Report{Sections: []report.Section{{Lines: true, Notes: report.Notes(texts...)}}}
}

func lines(what string, pods []podVersion, name func(podVersion) string) (all []string) {
	if len(pods) == 0 {
		return []string{what + ": none in the cluster"}
	}
	names := map[string][]string{}
	for _, p := range pods {
		names[p.Version] = append(names[p.Version], name(p))
	}
	for _, version := range slices.Sorted(maps.Keys(names)) {
		all = append(all, fmt.Sprintf("%s %s: %s", what, version, some(names[version])))
	}
	return all
}

// addVersionFlag adds --version. The one that cobra adds prints a template, or other words
// than version does.
func addVersionFlag(root *cobra.Command) {
	root.InitDefaultHelpFlag() // comes first
	asked := root.Flags().Bool("version", false, "version for flex2csi")
	missing := root.RunE
	root.RunE = func(c *cobra.Command, args []string) error {
		if *asked {
			_, err := fmt.Fprintln(c.OutOrStdout(), version.Get().Text("flex2csi"))
			return err
		}
		return missing(c, args)
	}
}
