package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

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

const (
	// fewVolumes is up to how many single ones are asked for, which any node may.
	fewVolumes = 200
	// atOnce is how many requests are under way at a time.
	atOnce = 10
)

// PersistentVolumesThere asks which of these PersistentVolumes there are, and for
// nothing else of them.
func (c *Cluster) PersistentVolumesThere(ctx context.Context, names []string) (map[string]bool, error) {
	there := map[string]bool{}
	if len(names) > fewVolumes {
		err := pages(ctx, metav1.ListOptions{}, c.listMetadata, func(l *metav1.PartialObjectMetadataList) {
			for i := range l.Items {
				there[l.Items[i].Name] = true
			}
		})
		if err != nil {
			return nil, failed(err, "list PersistentVolumes")
		}
		return there, nil
	}
	var mu sync.Mutex
	var asked sync.WaitGroup
	var errs []error
	turns := make(chan struct{}, atOnce)
	for _, name := range names {
		asked.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			_, err := request(ctx, func(ctx context.Context) ([]byte, error) {
				return c.core.RESTClient().Get().Resource("persistentvolumes").Name(name).
					SetHeader("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").Do(ctx).Raw()
			})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				there[name] = true
			case !apierrors.IsNotFound(err):
				errs = append(errs, failed(err, "look at PersistentVolume "+name))
			}
		})
	}
	asked.Wait()
	if len(errs) > 0 {
		return nil, errs[0]
	}
	return there, nil
}

func (c *Cluster) listMetadata(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	data, err := c.core.RESTClient().Get().Resource("persistentvolumes").VersionedParams(&o, scheme.ParameterCodec).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	var l metav1.PartialObjectMetadataList
	return &l, json.Unmarshal(data, &l)
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
