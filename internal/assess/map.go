package assess

// The map shows what the bridge would ask of a CSI driver for a volume. It does not imitate the
// bridge but runs it: with a service that notes the requests instead of sending them, with mounts
// and directories that are only noted as well, and without state. So the requests, and their
// order, are those of flex2csi serve. What only the driver or the node could tell, such as the
// driver's capabilities and the node's CSI id, is assumed and said so.

import (
	"context"
	"fmt"
	"path"
	"slices"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csiclient"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/drivers"
	"github.com/flex2csi/flex2csi/internal/kubeletdir"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// Placeholders stand for what is not known. They are not valid names, so that no reader
// takes them for real ones.
const (
	unknownNodeID    = "<node id, from NodeGetInfo>"
	unknownPodUID    = "<pod-uid>"
	unknownPod       = "<pod>"
	unknownNamespace = "<namespace>"
	unknownVolume    = "<volume>"
	unknownContext   = "<from ControllerPublishVolume>"
)

// Node is what a Plan is made for. The zero value is a node with the defaults.
type Node struct {
	KubeletDir string // default: /var/lib/kubelet
	Name       string // default: node-1
	// ID is what the CSI driver calls the node.
	ID string
	// ControlPlaneAttaches shows the callouts of a FlexVolume driver that is
	// installed with attach: true.
	ControlPlaneAttaches bool
	// Cluster says that flex2csi serve has access to the API server.
	Cluster bool
	// Capabilities of the CSI driver by the names of the specification; nil:
	// [DefaultCapabilities].
	Capabilities []string
}

// A Plan is what happens in the life of a volume.
type Plan struct {
	FlexDriver, CSIDriver string
	Volume                string // name
	Claim, Pod            string // namespace/name, if known
	Handle                string
	Result                Result
	// Attached says how the volume gets attached, in a Report.
	Attached string
	// Reason is why the result is not OK.
	Reason string
	// Notes say what is assumed, and what is odd.
	Notes []string
	Steps []Step
	// Redact masks the secrets of the volume in a text.
	Redact func(string) string

	volume *FlexVolume
	// idle are options without an effect, and empty are keys of the context without a value.
	idle, empty []string
	// asksCSIDriver: a CSIDriver object would decide, and there is none.
	asksCSIDriver bool
}

// A Result says whether a volume works with the configuration.
type Result string

// The results.
const (
	OK Result = "ok"
	// NoDriver: the configuration does not have the FlexVolume driver.
	NoDriver Result = "no driver"
	// NotMapped: the volume or its mapping is not valid.
	NotMapped Result = "not mapped"
	// Fails: a callout would fail.
	Fails Result = "fails"
	// Refused: the kubelet does not mount it, or flex2csi does not serve it, whatever the
	// mapping.
	Refused Result = "refused"
	// SameHandle: two PersistentVolumes are one volume of the CSI driver.
	SameHandle Result = "same handle"
)

// A Step is one callout.
type Step struct {
	Callout flex.Command
	On      string // what it is about: a directory or a node
	Actions []Action
	// Err is why the callout failed.
	Err error
}

// An Action is an RPC, something that is done on the node, or a request to the
// API server.
type Action struct {
	RPC     string
	Request csiclient.Message
	Node    string
	// API is a request to the API server, and Attachment what it makes.
	API        string
	Attachment *csivol.Attachment
}

// plan plans the life of a volume.
func (p *Plan) plan(v *FlexVolume, n Node, c *bridgeconfig.Driver, m *mapping.Mapper, csiDrivers map[string]csivol.DriverInfo) error {
	n = n.withDefaults(v)
	n.ControlPlaneAttaches = n.ControlPlaneAttaches || v.ControlPlaneAttaches
	n.Cluster = n.Cluster || len(c.WantsCluster()) > 0
	features, assumed := n.features(c)
	r := &recorder{features: features}
	driver := drivers.New(c, m, r, nil, nil)
	if n.Cluster {
		cluster := paper{recorder: r, volume: v, drivers: csiDrivers}
		driver = drivers.New(c, m, r, cluster, cluster)
		_, known := csiDrivers[c.CSIDriver]
		p.asksCSIDriver = !known
	}
	mapped, err := driver.Map(context.Background(), v.Options)
	if err != nil {
		return err
	}
	p.Handle = mapped.Handle
	p.empty = emptyValues(mapped)
	p.Notes = slices.Concat(assumed, v.Notes, v.oddities(mapped))
	if p.asksCSIDriver { // attaches, as the control plane has it
		p.Notes = append(p.Notes, "there is no CSIDriver object "+c.CSIDriver+": VolumeAttachments are shown, as without it in a cluster; with attachRequired: false in it there are none")
	}

	b := &bridge.Bridge{
		Context: context.Background(), Mounts: r, Dirs: r, State: nowhere{},
		KubeletDir: n.KubeletDir, NodeName: n.Name, BootID: "dry run",
		Drivers: bridge.Drivers{All: []*bridge.FlexDriver{driver}},
	}
	calls, err := b.Callouts(c.FlexDriver)
	if err != nil {
		return err
	}
	p.walk(calls, n.life(c, v), r)
	return nil
}

// walk makes the callouts one by one and keeps what they did.
func (p *Plan) walk(d *flex.Driver, calls []*flex.Call, r *recorder) {
	for _, call := range calls {
		step := Step{Callout: call.Command, On: call.Dir + call.NodeName}
		_, step.Err = d.Handle(context.Background(), call)
		step.Actions = r.take()
		p.Steps = append(p.Steps, step)
		if step.Err != nil {
			p.Result, p.Reason = Fails, fmt.Sprintf("%s of volume %s would fail: %s", step.Callout, p.Volume, p.Redact(step.Err.Error()))
			return // the kubelet would try again, and not go on
		}
	}
}

func (n Node) withDefaults(v *FlexVolume) Node {
	if place, err := kubeletdir.Parse(v.Dir); err == nil && n.KubeletDir == "" {
		n.KubeletDir = place.Root
	}
	if n.KubeletDir == "" {
		n.KubeletDir = "/var/lib/kubelet"
	}
	if n.Name == "" {
		n.Name = "node-1"
	}
	if n.ID == "" {
		n.ID = unknownNodeID
	}
	return n
}

// life is every callout from attach to detach in the order of the kubelet.
func (n Node) life(c *bridgeconfig.Driver, v *FlexVolume) []*flex.Call {
	place := kubeletdir.Place{Root: n.KubeletDir, Driver: c.FlexDriver, Volume: v.Options.VolumeName, PodUID: v.Options.PodUID}
	device := path.Join(kubeletdir.DeviceDir(place.Root, place.Driver), place.Volume)
	dir := v.Dir
	if dir == "" {
		dir = path.Join(place.Root, "pods", place.PodUID, kubeletdir.PodDir(place.Driver), place.Volume)
	}
	// The kubelet tells the pod and passes the secret in mount only.
	plain := v.Options
	plain.PodName, plain.PodNamespace, plain.PodUID, plain.ServiceAccountName, plain.FSGroup, plain.Secrets = "", "", "", "", nil, nil

	var calls []*flex.Call
	add := func(c flex.Call) {
		c.VolumeName = v.Options.VolumeName
		calls = append(calls, &c)
	}
	if n.ControlPlaneAttaches {
		add(flex.Call{Command: flex.CommandAttach, Options: plain, NodeName: n.Name})
		add(flex.Call{Command: flex.CommandMountDevice, Options: plain, Dir: device})
	}
	add(flex.Call{Command: flex.CommandMount, Options: v.Options, Dir: dir})
	if v.NewSize > 0 && !v.Options.ReadOnly && n.can(expand) {
		add(flex.Call{Command: flex.CommandExpandFS, Options: plain, Dir: dir, NewSize: v.NewSize, OldSize: v.OldSize})
	}
	add(flex.Call{Command: flex.CommandUnmount, Dir: dir})
	if n.ControlPlaneAttaches {
		add(flex.Call{Command: flex.CommandUnmountDevice, Dir: device})
		add(flex.Call{Command: flex.CommandDetach, NodeName: n.Name})
	}
	return calls
}

// nowhere keeps no records.
type nowhere struct{}

func (nowhere) Put(*volstate.Record) error { return nil }
func (nowhere) Delete(csivol.Key) error    { return nil }
