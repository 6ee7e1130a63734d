package kube

import (
	"context"
	"encoding/json"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/clusterview"
)

// Version asks for that of the API server.
func (c *Cluster) Version(ctx context.Context) (string, error) {
	data, err := request(ctx, func(ctx context.Context) ([]byte, error) {
		return c.core.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	})
	if err != nil {
		return "", failed(err, "ask the API server for its version")
	}
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return "", fmt.Errorf("ask the API server for its version: %w", err)
	}
	return v.GitVersion, nil
}

// ListDrivers asks for all CSIDriver objects; CSIDriver knows them from a mirror.
func (c *Cluster) ListDrivers(ctx context.Context) (all []clusterview.Driver, err error) {
	err = pages(ctx, metav1.ListOptions{}, c.storage.CSIDrivers().List, func(l *storagev1.CSIDriverList) {
		for i := range l.Items {
			all = append(all, clusterview.Driver{Name: l.Items[i].Name, DriverInfo: driverInfo(&l.Items[i])})
		}
	})
	if err != nil {
		return nil, failed(err, "list CSIDrivers")
	}
	return all, nil
}

// NodeDrivers asks for the CSI drivers that are registered on a node.
func (c *Cluster) NodeDrivers(ctx context.Context, node string) (all []clusterview.NodeDriver, err error) {
	o, err := request(ctx, func(ctx context.Context) (*storagev1.CSINode, error) {
		return c.storage.CSINodes().Get(ctx, node, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, failed(err, "look at CSINode "+node)
	}
	for _, d := range o.Spec.Drivers {
		n := clusterview.NodeDriver{Name: d.Name, NodeID: d.NodeID}
		if d.Allocatable != nil {
			n.Limit = d.Allocatable.Count
		}
		all = append(all, n)
	}
	return all, nil
}

// Kubelet asks a kubelet for the configuration that it runs with (configz). That
// wants the right to get nodes/proxy, which few but administrators have, and for
// good reasons.
func (c *Cluster) Kubelet(ctx context.Context, node string) (clusterview.Kubelet, error) {
	what := "ask the kubelet of node " + node + " for its configuration"
	data, err := request(ctx, func(ctx context.Context) ([]byte, error) {
		return c.core.RESTClient().Get().Resource("nodes").Name(node).SubResource("proxy").Suffix("configz").Do(ctx).Raw()
	})
	if err != nil {
		return clusterview.Kubelet{}, failed(err, what)
	}
	var answer struct {
		Kubelet struct {
			VolumePluginDir              string `json:"volumePluginDir"`
			EnableControllerAttachDetach bool   `json:"enableControllerAttachDetach"`
		} `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return clusterview.Kubelet{}, fmt.Errorf("%s: %w", what, err)
	}
	return clusterview.Kubelet(answer.Kubelet), nil
}
