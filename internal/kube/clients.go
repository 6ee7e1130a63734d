package kube

import (
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
)

// clients are those for the few kinds of objects that flex2csi looks at.
type clients struct {
	attachments *gentype.ClientWithList[*storagev1.VolumeAttachment, *storagev1.VolumeAttachmentList]
	csiDrivers  *gentype.ClientWithList[*storagev1.CSIDriver, *storagev1.CSIDriverList]
	csiNodes    *gentype.Client[*storagev1.CSINode]
	volumes     *gentype.Client[*corev1.PersistentVolume]
	nodes       *gentype.ClientWithList[*corev1.Node, *corev1.NodeList]

	core, coordination rest.Interface
	// parameters encodes the options of requests.
	parameters runtime.ParameterCodec
}

func (c *clients) pods(namespace string) *gentype.ClientWithList[*corev1.Pod, *corev1.PodList] {
	return gentype.NewClientWithList("pods", c.core, c.parameters, namespace,
		func() *corev1.Pod { return &corev1.Pod{} },
		func() *corev1.PodList { return &corev1.PodList{} },
		gentype.PrefersProtobuf[*corev1.Pod]())
}

func (c *clients) secrets(namespace string) *gentype.Client[*corev1.Secret] {
	return gentype.NewClient("secrets", c.core, c.parameters, namespace,
		func() *corev1.Secret { return &corev1.Secret{} }, gentype.PrefersProtobuf[*corev1.Secret]())
}

func (c *clients) events(namespace string) *gentype.Client[*corev1.Event] {
	return gentype.NewClient("events", c.core, c.parameters, namespace,
		func() *corev1.Event { return &corev1.Event{} }, gentype.PrefersProtobuf[*corev1.Event]())
}

func (c *clients) leases(namespace string) *gentype.Client[*coordinationv1.Lease] {
	return gentype.NewClient("leases", c.coordination, c.parameters, namespace,
		func() *coordinationv1.Lease { return &coordinationv1.Lease{} }, gentype.PrefersProtobuf[*coordinationv1.Lease]())
}

// newScheme knows the types of the clients, and no others.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, storagev1.AddToScheme, authenticationv1.AddToScheme, coordinationv1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// newClients makes the clients; it asks nothing of the API server.
func newClients(config *rest.Config) (*clients, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, fmt.Errorf("list the kinds of objects: %w", err)
	}
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	group := func(path string, v schema.GroupVersion) (rest.Interface, error) {
		c := rest.CopyConfig(config)
		c.GroupVersion, c.APIPath = &v, path
		c.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(scheme, serializer.NewCodecFactory(scheme)).WithoutConversion()
		return rest.RESTClientForConfigAndClient(c, transport)
	}
	core, err := group("/api", corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	storage, err := group("/apis", storagev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	coordination, err := group("/apis", coordinationv1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	c := typed(core, storage, runtime.NewParameterCodec(scheme))
	c.coordination = coordination
	return c, nil
}

func typed(core, storage rest.Interface, p runtime.ParameterCodec) *clients {
	return &clients{
		attachments: gentype.NewClientWithList("volumeattachments", storage, p, "",
			func() *storagev1.VolumeAttachment { return &storagev1.VolumeAttachment{} },
			func() *storagev1.VolumeAttachmentList { return &storagev1.VolumeAttachmentList{} },
			gentype.PrefersProtobuf[*storagev1.VolumeAttachment]()),
		csiDrivers: gentype.NewClientWithList("csidrivers", storage, p, "",
			func() *storagev1.CSIDriver { return &storagev1.CSIDriver{} },
			func() *storagev1.CSIDriverList { return &storagev1.CSIDriverList{} },
			gentype.PrefersProtobuf[*storagev1.CSIDriver]()),
		csiNodes: gentype.NewClient("csinodes", storage, p, "",
			func() *storagev1.CSINode { return &storagev1.CSINode{} },
			gentype.PrefersProtobuf[*storagev1.CSINode]()),
		volumes: gentype.NewClient("persistentvolumes", core, p, "",
			func() *corev1.PersistentVolume { return &corev1.PersistentVolume{} },
			gentype.PrefersProtobuf[*corev1.PersistentVolume]()),
		nodes: gentype.NewClientWithList("nodes", core, p, "",
			func() *corev1.Node { return &corev1.Node{} },
			func() *corev1.NodeList { return &corev1.NodeList{} },
			gentype.PrefersProtobuf[*corev1.Node]()),
		core:       core,
		parameters: p,
	}
}
