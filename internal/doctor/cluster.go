package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/kubelet"
	"github.com/flex2csi/flex2csi/internal/objects"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// slowAPI is the response time of the API server from which to warn.
const slowAPI = 2 * time.Second

// ofCluster is what only the API server knows.
const ofCluster = "the cluster: versions, CSIDriver and CSINode objects, VolumeAttachments, orphaned pods"

// checkCluster checks whether the API server answers.
func (p *probe) checkCluster(ctx context.Context, n *notes) {
	if p.Cluster == nil {
		n.skip(ofCluster, "%s", p.NoCluster)
		return
	}
	version, err := p.version()
	switch {
	case err != nil:
		n.add(apiUnreachable, "API server", "the API server%s does not answer: %v", p.server(), cause(err))
	case version.took > slowAPI:
		n.add(apiSlow, "API server", "the API server took %v for the smallest of requests", version.took)
	default:
		n.add(apiFine, "API server", "the API server answers; Kubernetes %s", version.text).evidence(fmt.Sprintf("in %v", version.took))
	}
	if unreachable(err) {
		n.skip(ofCluster, "the API server does not answer")
	}
	checkRelease(n, version.text)
}

// server returns the address of the API server, after a space; empty if it is not known.
func (p *probe) server() string {
	if p.Server == "" {
		return ""
	}
	return " " + p.Server
}

// unreachable reports whether the API server has not answered. An answer about rights is one.
func unreachable(err error) bool { return flex.CodeOf(err) == flex.CodeUnavailable }

// cause returns why a request failed, without the advice for a daemon, which tries again.
func cause(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// reached makes a check that asks the API server, unless that does not answer: then one
// message is enough.
func (p *probe) reached(c check) check {
	return check{c.name, func(ctx context.Context, n *notes) {
		if _, err := p.version(); !unreachable(err) {
			c.run(ctx, n)
		}
	}}
}

// checkRelease says what an older release lacks of what flex2csi uses.
func checkRelease(n *notes, version string) {
	minor, ok := distribution.ParseMinor(version)
	if !ok {
		return
	}
	var lacks []string
	for _, c := range distribution.ReleaseCapabilities() {
		if distribution.CompleteMinor().Has(c) && !minor.Has(c) {
			lacks = append(lacks, strings.ReplaceAll(fmt.Sprintf("%s, since %s: %s", c.Name, c.Since, c.Without), "`", ""))
		}
	}
	if len(lacks) > 0 {
		n.add(releaseOld, "API server", "Kubernetes %s lacks what flex2csi uses in later releases", minor).evidence(lacks...)
	}
}

// checkNodes checks this node or all nodes, and their versions.
func (p *probe) checkNodes(ctx context.Context, n *notes) {
	nodes, err := p.nodes()
	if err != nil {
		n.skip("nodes", "%v", err)
		return
	}
	if wanted := p.node(); wanted != "" {
		i := slices.IndexFunc(nodes, func(node corev1.Node) bool { return node.Name == wanted })
		if i < 0 {
			n.add(nodeMissing, wanted, "Kubernetes has no node called %s among its %d", wanted, len(nodes))
			return
		}
		nodes = nodes[i : i+1]
	}
	version, err := p.version()
	if err != nil {
		n.skip("versions of the nodes", "%v", err)
	}
	for i := range nodes {
		node := &nodes[i]
		kubeletVersion := node.Status.NodeInfo.KubeletVersion
		if problem := skew(version.text, kubeletVersion); problem != "" {
			n.add(versionSkew, node.Name, "the kubelet of node %s is %s, %s the API server's %s", node.Name, kubeletVersion, problem, version.text)
		}
		if !objects.NodeReady(node) {
			n.add(nodeNotReady, node.Name, "node %s is not ready", node.Name)
		}
		if objects.NodeOutOfService(node) {
			n.add(nodeNotReady, node.Name, "node %s has the taint node.kubernetes.io/out-of-service: its volumes are taken from it", node.Name)
		}
	}
}

// maxSkew: https://kubernetes.io/releases/version-skew-policy/#kubelet
const maxSkew = 3

// skew returns what is wrong with a kubelet's version; empty if nothing, or if a version
// is not known.
func skew(server, kubelet string) string {
	a, ok1 := distribution.ParseMinor(server)
	b, ok2 := distribution.ParseMinor(kubelet)
	switch {
	case !ok1 || !ok2:
		return ""
	case b > a:
		return "newer than"
	case a-b > maxSkew:
		return fmt.Sprintf("%d minor versions older than", a-b)
	}
	return ""
}

// checkObjects compares the configuration with the CSIDriver objects, and checks that
// the drivers are registered on the node.
func (p *probe) checkObjects(ctx context.Context, n *notes) {
	objects, err := p.drivers()
	if err != nil {
		n.skip("CSIDriver objects", "%v", err)
		return
	}
	config, err := p.config()
	if err != nil {
		n.skip("whether CSIDriver and CSINode objects fit the configuration of the bridge", "the configuration is not known: %v", err)
		return
	}
	node := p.node()
	var onNode []storagev1.CSINodeDriver
	if node == "" {
		n.skip("the CSINode object", "the name of the node is not known: --node-name")
	} else if onNode, err = p.Cluster.NodeDrivers(ctx, node); err != nil {
		n.skip("the CSINode object of node "+node, "%v", err)
		node = ""
	}
	for i := range config.Drivers {
		d := &config.Drivers[i]
		j := slices.IndexFunc(objects, func(o storagev1.CSIDriver) bool { return o.Name == d.CSIDriver })
		if j < 0 {
			n.add(objectMissing, d.CSIDriver, "there is no CSIDriver object %s", d.CSIDriver)
		} else {
			p.compareObject(n, d, &objects[j])
		}
		if node == "" {
			continue
		}
		k := slices.IndexFunc(onNode, func(o storagev1.CSINodeDriver) bool { return o.Name == d.CSIDriver })
		if k < 0 {
			n.add(nodeObjectLacks, d.CSIDriver, "CSINode %s has no driver %s", node, d.CSIDriver)
			continue
		}
		n.add(nodeObjectFine, d.CSIDriver, "CSINode %s has driver %s, which calls the node %s", node, d.CSIDriver, onNode[k].NodeID)
		p.checkLimit(n, node, &onNode[k])
	}
}

func (p *probe) compareObject(n *notes, d *bridgeconfig.Driver, object *storagev1.CSIDriver) {
	o, name := objects.DriverInfo(object), object.Name
	n.add(objectFine, name, "CSIDriver %s: attachRequired %v, podInfoOnMount %v, fsGroupPolicy %s, requiresRepublish %v", name, o.AttachRequired, o.PodInfoOnMount, o.FSGroupPolicy, o.RequiresRepublish)
	panics := objects.PanicsAtAttachments(name)
	if o.AttachRequired && panics && d.Attach != bridgeconfig.AttachNone {
		n.add(objectPanics, name, "CSI driver %s panics when it starts on a node with a VolumeAttachment of flex2csi, and for %s attach is %s", name, d.FlexDriver, d.Attach)
	}
	if o.AttachRequired && !panics && d.Attach == bridgeconfig.AttachNone {
		n.add(objectAttach, name, "volumes of %s have to be attached, and for %s attach: None is configured", name, d.FlexDriver)
	}
	if s, err := p.status(); p.Local && err == nil && s.absent == nil && s.Cluster == nil && o.AttachRequired && d.Attach == bridgeconfig.AttachAuto && d.ControllerEndpoint == "" {
		n.add(objectAttach, name, "volumes of %s have to be attached, and the daemon has no way to do so: neither access to Kubernetes nor a controllerEndpoint", name).
			advice("Start the daemon with --in-cluster (or --kubeconfig) and the rights of install/rbac/node.yaml, or configure a controllerEndpoint.")
	}
}

// checkLimit counts all attached volumes.
func (p *probe) checkLimit(n *notes, node string, d *storagev1.CSINodeDriver) {
	all, err := p.attachments()
	limit := objects.AttachLimit(d)
	if err != nil || limit == nil {
		return
	}
	count := 0
	for i := range all {
		if all[i].Spec.NodeName == node && all[i].Spec.Attacher == d.Name {
			count++
		}
	}
	if count >= int(*limit) {
		n.add(attachmentLimit, node, "%d volumes of %s are attached to node %s, of %d that may be", count, d.Name, node, *limit)
	}
}

// maxKubelets bounds the kubelets that are asked for their configuration: a sample shows
// whether they differ.
const maxKubelets = 50

// checkKubelets asks kubelets for their current configuration, which may differ from
// their files. From a workstation it asks all.
func (p *probe) checkKubelets(ctx context.Context, n *notes) {
	names := []string{p.node()}
	if names[0] == "" {
		nodes, err := p.nodes()
		if err != nil {
			return // checkNodes says why
		}
		names = nil
		for i := range nodes {
			if objects.NodeReady(&nodes[i]) && len(names) < maxKubelets {
				names = append(names, nodes[i].Name)
			}
		}
	}
	answers := make([]kubelet.Configuration, len(names))
	errs := make([]error, len(names))
	var asked sync.WaitGroup
	turns := make(chan struct{}, 10)
	for i, name := range names {
		asked.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			answers[i], errs[i] = p.Cluster.Kubelet(ctx, name)
		})
	}
	asked.Wait()
	dirs := map[string][]string{}
	for i, name := range names {
		if errs[i] != nil {
			n.skip("the configuration that the kubelet of node "+name+" runs with (nodes/proxy, configz)", "%v", errs[i])
			continue
		}
		dirs[answers[i].VolumePluginDir] = append(dirs[answers[i].VolumePluginDir], name)
		p.judgeKubelet(n, name, answers[i])
	}
	if len(dirs) > 1 {
		e := n.add(pluginDirsDiffer, "volumePluginDir", "the nodes have %d different plugin directories", len(dirs))
		for _, dir := range sortedKeys(dirs) {
			e.evidence(dir + ": " + clip(strings.Join(dirs[dir], ", ")))
		}
	}
}

func (p *probe) judgeKubelet(n *notes, node string, answer kubelet.Configuration) {
	if !ptr.Deref(answer.EnableControllerAttachDetach, true) {
		n.add(attachDetachOff, node, "the kubelet of node %s runs with enableControllerAttachDetach: false", node)
	}
	e := n.add(pluginDirUsed, node, "the kubelet of node %s reads its drivers from %s", node, answer.VolumePluginDir).evidence("as it says itself (configz)")
	if p.PluginDir != "" && strings.TrimSuffix(p.PluginDir, "/") != strings.TrimSuffix(answer.VolumePluginDir, "/") {
		n.add(pluginDirMismatch, answer.VolumePluginDir, "the kubelet of node %s reads its drivers from %s, not from %s", node, answer.VolumePluginDir, p.PluginDir)
	}
	if !p.Local {
		return
	}
	if k, err := p.kubelet(); err == nil && strings.TrimSuffix(answer.VolumePluginDir, "/") != k.PluginDir {
		n.add(kubeletNotRestarted, k.PluginDirFrom, "the running kubelet reads its drivers from %s, and its configuration now says %s (%s)", answer.VolumePluginDir, k.PluginDir, k.PluginDirFrom)
		e.evidence("its files say " + k.PluginDir)
	}
}
