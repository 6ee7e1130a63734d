package doctor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/attachment"
	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/clusterview"
)

// An account is a ServiceAccount of install/rbac that may attach.
type account struct{ name, by string }

func accounts() []account {
	return []account{{"flex2csi-node", attachment.AttachedByNode}, {"flex2csi-controller", attachment.AttachedByController}}
}

const (
	serviceAccount = "system:serviceaccount:"
	// anyDriver is one that no configuration has.
	anyDriver = "flex2csi-doctor.invalid"
)

// checkPolicies: whether policies confine the tokens of flex2csi to attachments of its
// own, for the CSI drivers of the configuration. A ServiceAccount of flex2csi tries as
// itself, anybody else in its name.
func (p *patient) checkPolicies(ctx context.Context, n *notes) {
	const what = "whether policies confine the attachments of flex2csi"
	config, err := p.config()
	if err != nil {
		n.skip(what, "the configuration is not known: %v", err)
		return
	}
	user, err := p.Cluster.User(ctx)
	if err != nil {
		n.skip(what, "%v", err)
		return
	}
	drivers := p.attaching(config)
	if len(drivers) == 0 {
		return
	}
	node := cmp.Or(user.Node, p.anyNode())
	for _, a := range accounts() {
		try := clusterview.Attempt{By: a.by, Node: node}
		switch accountOf(user.Name) {
		case a.name:
		case "":
			try.As = clusterview.User{Name: serviceAccount + "flex2csi:" + a.name, Node: node}
		default:
			continue
		}
		if err := p.checkAccount(ctx, n, try, cmp.Or(try.As.Name, user.Name), drivers); err != nil {
			n.skip(what+": "+a.name, "%v", err)
		}
	}
}

// accountOf is the name of a ServiceAccount of flex2csi, in whatever namespace; empty if
// the user is another.
func accountOf(user string) string {
	_, name, _ := strings.Cut(strings.TrimPrefix(user, serviceAccount), ":")
	if strings.HasPrefix(user, serviceAccount) && slices.ContainsFunc(accounts(), func(a account) bool { return a.name == name }) {
		return name
	}
	return ""
}

// attaching are the CSI drivers for which VolumeAttachments are made, as far as is known.
func (p *patient) attaching(config *bridgeconfig.Configuration) (names []string) {
	objects, _ := p.drivers() // checkObjects says why not
	for i := range config.Drivers {
		d := &config.Drivers[i]
		does := d.Attach == bridgeconfig.AttachAuto || d.Attach == bridgeconfig.AttachVA
		if does && !slices.ContainsFunc(objects, func(o clusterview.Driver) bool { return o.Name == d.CSIDriver && !o.AttachRequired }) && !slices.Contains(names, d.CSIDriver) {
			names = append(names, d.CSIDriver)
		}
	}
	return names
}

// anyNode is a node that an attachment may be for.
func (p *patient) anyNode() string {
	if name := p.node(); name != "" {
		return name
	}
	if nodes, err := p.nodes(); err == nil && len(nodes) > 0 {
		return nodes[0].Name
	}
	return "flex2csi-doctor"
}

// checkAccount tries as one user.
func (p *patient) checkAccount(ctx context.Context, n *notes, try clusterview.Attempt, user string, drivers []string) error {
	unmarked, other := try, try
	unmarked.Unmarked, unmarked.Driver, other.Driver = true, drivers[0], anyDriver
	says, err := p.Cluster.DeniesAttachment(ctx, unmarked)
	if errors.Is(err, clusterview.ErrNoRight) {
		return errors.New(user + " may create no VolumeAttachments; if flex2csi is in another namespace, run this in its pods")
	}
	if err != nil {
		return err
	}
	if says == "" {
		n.add(attachmentsOpen, user, "no policy confines %s to attachments of flex2csi", user)
	}
	if says, err = p.Cluster.DeniesAttachment(ctx, other); err != nil {
		return err
	}
	if says == "" {
		n.add(driversOpen, user, "%s may attach volumes of any CSI driver", user)
	} else {
		n.add(driversConfined, user, "%s may not attach volumes of other CSI drivers", user).evidence(says)
	}
	for _, try.Driver = range drivers {
		if says, err = p.Cluster.DeniesAttachment(ctx, try); err != nil {
			return err
		}
		if says != "" {
			n.add(attachDenied, try.Driver, "a policy denies %s attachments of volumes of %s", user, try.Driver).evidence(says)
		}
	}
	return nil
}
