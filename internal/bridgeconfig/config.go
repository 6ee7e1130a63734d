// Package bridgeconfig is the configuration of the bridge: which FlexVolume
// drivers flex2csi serves, with which CSI driver, and how the options of a
// volume become what that driver wants. docs/bridge-configuration.md tells
// people what the fields mean.
//
// Decoding is strict and reports all faults at once, each with its path and
// line. The package knows nothing of CEL: expressions are text here, and
// package mapping compiles them.
package bridgeconfig

import (
	"time"

	storagev1 "k8s.io/api/storage/v1"
)

const (
	// APIVersion is the only version of the format so far.
	APIVersion = "flex2csi.io/v1alpha1"
	// Kind names the format.
	Kind = "BridgeConfiguration"
	// MaxSize bounds what is read. It is room for some thousand drivers.
	MaxSize = 1 << 20
)

// Configuration is the content of the file.
type Configuration struct {
	// APIVersion and Kind are the constants of the same names.
	APIVersion string `yaml:"apiVersion" jsonschema:"required"`
	Kind       string `yaml:"kind" jsonschema:"required"`

	// Drivers are the FlexVolume drivers that are served, at least one.
	Drivers []Driver `yaml:"drivers" jsonschema:"required,minItems=1"`
}

// Driver is one FlexVolume driver and its CSI driver.
type Driver struct {
	// FlexDriver is the name in PersistentVolumes (spec.flexVolume.driver), in
	// the form vendor/name.
	FlexDriver string `yaml:"flexDriver" jsonschema:"required,pattern=^[^/]+/[^/]+$"`
	// CSIDriver is what the CSI driver calls itself (GetPluginInfo). It is
	// compared before anything else is asked of the driver.
	CSIDriver string `yaml:"csiDriver" jsonschema:"required,minLength=1"`
	// When says which volumes of FlexDriver are those of CSIDriver, where several
	// drivers have one FlexDriver: a CEL expression over options, pvName and fsType
	// that gives a bool. For each volume it must be true for one of them.
	When string `yaml:"when,omitempty" want:"an expression"`

	// Endpoint is the socket of the node service, as unix:///path or a path.
	// Empty: the socket that the driver has registered with the kubelet, looked up
	// after each restart of the driver.
	Endpoint string `yaml:"endpoint,omitempty"`
	// ControllerEndpoint is the socket of the controller service, if it can be
	// reached from this node. Expanding needs it, and attaching through it.
	ControllerEndpoint string `yaml:"controllerEndpoint,omitempty"`
	// Attach says how volumes get attached to the node.
	Attach AttachMode `yaml:"attach"`

	// Volume is how the options of a volume become a CSI volume.
	Volume VolumeMapping `yaml:"volume"`
	// Secrets are what the CSI driver gets, by stage. A stage that is not named
	// gets none.
	Secrets Secrets `yaml:"secrets,omitempty"`

	// ClassParameters are the parameters of the CSI StorageClass in place of one that
	// makes FlexVolumes: a CEL expression over parameters, those of that class by their
	// names in lower case. Only flex2csi migrate classes uses it.
	ClassParameters string `yaml:"classParameters,omitempty" want:"an expression"`

	// PodInfo adds the pod's name, namespace, UID and service account to the
	// volume context of NodePublishVolume (CSIDriver.spec.podInfoOnMount). It,
	// RequiresRepublish and FSGroup are what the CSIDriver object says if they
	// are not set and there is access to the API server.
	PodInfo *bool `yaml:"podInfo,omitempty"`
	// RequiresRepublish repeats NodePublishVolume once a minute
	// (CSIDriver.spec.requiresRepublish).
	RequiresRepublish *bool `yaml:"requiresRepublish,omitempty"`
	// ServiceAccountTokens gives the CSI driver tokens of the pod's service
	// account, if its CSIDriver object asks for some (tokenRequests).
	ServiceAccountTokens bool `yaml:"serviceAccountTokens"`
	// RepairInUse replaces mounts that died with their driver also under pods with
	// running containers. Meanwhile a container may see the bare directory below,
	// and write to it.
	RepairInUse bool `yaml:"repairInUse"`
	// FSGroup says when the pod's fsGroup is applied to the volume: File always,
	// ReadWriteOnceWithFSType (the default of Kubernetes) to volumes with a
	// filesystem type and an access mode of one node, None never.
	FSGroup storagev1.FSGroupPolicy `yaml:"fsGroup,omitempty"`

	// Inline allows volumes that a pod specifies by itself. Their options are
	// the pod author's, who can name any volume of the storage system.
	Inline bool `yaml:"inline"`
	// PVNamePattern is a regular expression that the whole name of a volume
	// must match, unless Inline is true. A callout does not say whether its
	// volume is inline; this is what can be done without the API server.
	PVNamePattern string `yaml:"pvNamePattern,omitempty"`
	// Timeout is that of single RPCs: the Loader's.
	Timeout time.Duration `yaml:"-"`
}

// A VolumeMapping has CEL expressions over the callout: options, pvName, fsType,
// readOnly, accessModes and pod. Package mapping tells more.
type VolumeMapping struct {
	// Handle is the volume_id; a string.
	Handle string `yaml:"handle" want:"an expression"`
	// Context is the volume_context; a map of strings.
	Context string `yaml:"context" want:"an expression"`
	// MountFlags are those of the volume capability; a list of strings.
	MountFlags string `yaml:"mountFlags" want:"an expression"`
	// FSType is that of the volume capability; a string, which may be empty.
	FSType string `yaml:"fsType" want:"an expression"`
	// AccessMode is one of the names that Kubernetes has for them; a string,
	// which may be empty: then it is not known.
	AccessMode string `yaml:"accessMode" want:"an expression"`
}

// Secrets says for each stage where its secrets come from.
type Secrets struct {
	ControllerPublish *SecretSource `yaml:"controllerPublish,omitempty"`
	NodeStage         *SecretSource `yaml:"nodeStage,omitempty"`
	NodePublish       *SecretSource `yaml:"nodePublish,omitempty"`
	NodeExpand        *SecretSource `yaml:"nodeExpand,omitempty"`
	ControllerExpand  *SecretSource `yaml:"controllerExpand,omitempty"`
}

// SecretSource is where the secrets of one stage come from: one of
// FromFlexSecret, File and SecretRef.
type SecretSource struct {
	// FromFlexSecret takes them from the Secret that the volume's secretRef
	// names: for each key that the CSI driver wants, the key in that Secret.
	// The kubelet passes it to mount only, so there is none for an expansion, nor
	// to attach where the control plane attaches.
	FromFlexSecret map[string]string `yaml:"fromFlexSecret,omitempty"`
	// Optional are keys of FromFlexSecret, as the CSI driver calls them, that it
	// gets only if the volume's Secret has them.
	Optional []string `yaml:"optional,omitempty"`
	// File is a file on the node that only root owns and may read. It is read for
	// each call, so that it can be replaced. Without Key it holds a YAML or JSON
	// object: the keys and values for the CSI driver.
	File string `yaml:"file,omitempty"`
	// Key makes the whole content of File the value of this one key.
	Key string `yaml:"key,omitempty"`
	// SecretRef names a Secret, which is read from the API server; that of
	// ControllerPublish by the external-attacher, where that attaches.
	SecretRef *SecretRef `yaml:"secretRef,omitempty"`
}

// SecretRef names a Secret of Kubernetes.
type SecretRef struct {
	Name      string `yaml:"name" jsonschema:"required"`
	Namespace string `yaml:"namespace" jsonschema:"required"`
}

// AttachMode is how a volume gets attached to the node.
type AttachMode string

const (
	// AttachAuto attaches through the controller service if the driver has
	// PUBLISH_UNPUBLISH_VOLUME and ControllerEndpoint is set; else by
	// VolumeAttachments if the CSIDriver object says so, and there is access to
	// the API server.
	AttachAuto AttachMode = "Auto"
	// AttachNone never attaches.
	AttachNone AttachMode = "None"
	// AttachController attaches through the controller service and fails if
	// that is not possible.
	AttachController AttachMode = "Controller"
	// AttachVA attaches by VolumeAttachments.
	AttachVA AttachMode = "VolumeAttachment"
)

// DefaultTimeout of an RPC is that of the kubelet's CSI plugin
// (pkg/volume/csi/csi_plugin.go, csiTimeout, Kubernetes v1.37.1).
const DefaultTimeout = 2 * time.Minute

// DefaultDriver returns a driver about which nothing was said. It is the one
// place with defaults: decoding begins with its result.
//
// The expressions are the convention for volumes that are made for the bridge:
// one option names the volume, mountOptions are its mount flags, and all others
// are the volume context. They are written down as expressions so that
// flex2csi check shows them and people can start from them.
func DefaultDriver() Driver {
	return Driver{
		Attach: AttachAuto,
		Volume: VolumeMapping{
			Handle:     `options.?volumeHandle.or(options.?volumeID).orValue("")`,
			Context:    `options.transformMap(k, v, !(k in ["volumeHandle", "mountOptions"]) && (k != "volumeID" || "volumeHandle" in options), v)`,
			MountFlags: `splitOptions(options.?mountOptions.orValue(""))`,
			FSType:     `fsType`,
			AccessMode: `accessModes.size() > 0 ? accessModes[0] : ""`,
		},
		Timeout: DefaultTimeout,
	}
}
