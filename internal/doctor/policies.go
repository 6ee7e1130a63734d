package doctor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// An account is a ServiceAccount of install/rbac that may attach.
type account struct{ name, by string }

func accounts() []account {
	return []account{{"flex2csi-node", objects.AttachedByNode}, {"flex2csi-controller", objects.AttachedByController}}
}

const (
	serviceAccount = "system:serviceaccount:"
	// anyDriver is a driver that no configuration has.
	anyDriver = "flex2csi-doctor.invalid"
)

// checkPolicies checks whether policies confine the tokens of flex2csi to its own
// attachments, for the CSI drivers of the configuration. A ServiceAccount of flex2csi tries
// as itself, another user impersonates it.
func (p *probe) checkPolicies(ctx context.Context, n *notes) {
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
	node := p.anyNode()
	if bound := user.Extra[nodeNameExtra]; len(bound) > 0 {
		node = bound[0]
	}
	for _, a := range accounts() {
		try := attempt{account: a, node: node, user: user.Username}
		switch accountOf(user.Username) {
		case a.name:
		case "":
			try.user = serviceAccount + cmp.Or(p.Namespace, "flex2csi") + ":" + a.name
			try.as = authenticationv1.UserInfo{Username: try.user, Extra: map[string]authenticationv1.ExtraValue{nodeNameExtra: {node}}}
		default:
			continue
		}
		if err := p.checkAccount(ctx, n, try, drivers); err != nil {
			n.skip(what+": "+a.name, "%v", err)
		}
	}
}

// nodeNameExtra is where the API server keeps the node that a token is bound to
// (k8s.io/apiserver/pkg/authentication/serviceaccount/util.go, NodeNameKey).
const nodeNameExtra = "authentication.kubernetes.io/node-name"

// accountOf returns the name of a ServiceAccount of flex2csi, in any namespace; empty for
// other users.
func accountOf(user string) string {
	_, name, _ := strings.Cut(strings.TrimPrefix(user, serviceAccount), ":")
	if strings.HasPrefix(user, serviceAccount) && slices.ContainsFunc(accounts(), func(a account) bool { return a.name == name }) {
		return name
	}
	return ""
}

// attaching returns the CSI drivers with VolumeAttachments, as far as known.
func (p *probe) attaching(config *bridgeconfig.Configuration) (names []string) {
	objects, _ := p.drivers() // checkObjects says why not
	for i := range config.Drivers {
		d := &config.Drivers[i]
		does := d.Attach == bridgeconfig.AttachAuto || d.Attach == bridgeconfig.AttachVA
		if does && !attachesNothing(objects, d.CSIDriver) && !slices.Contains(names, d.CSIDriver) {
			names = append(names, d.CSIDriver)
		}
	}
	return names
}

// anyNode returns a node for an attachment.
func (p *probe) anyNode() string {
	if name := p.node(); name != "" {
		return name
	}
	if nodes, err := p.nodes(); err == nil && len(nodes) > 0 {
		return nodes[0].Name
	}
	return "flex2csi-doctor"
}

// An attempt is an attach as an account.
type attempt struct {
	account
	user, node string
	as         authenticationv1.UserInfo // to impersonate; without a name: this program's user
}

// attach tries to attach a volume of a CSI driver. Unmarked: the VolumeAttachment lacks
// flex2csi's label.
func (p *probe) attach(ctx context.Context, try attempt, driver string, unmarked bool) (says string, err error) {
	o := objects.NewAttachment(&csivol.Attachment{Driver: driver, Node: try.node, Handle: "flex2csi-doctor", AccessModes: []csivol.AccessMode{csivol.ReadWriteOnce}}, try.by)
	if unmarked {
		delete(o.Labels, objects.ManagedByLabel)
	}
	return p.Cluster.DeniesAttachment(ctx, try.as, o)
}

// checkAccount tries as one account.
func (p *probe) checkAccount(ctx context.Context, n *notes, try attempt, drivers []string) error {
	says, err := p.attach(ctx, try, drivers[0], true)
	if mayNotAttach(err) {
		return errors.New(try.user + " may create no VolumeAttachments; if flex2csi is in another namespace, give --flex2csi-namespace")
	}
	if err != nil {
		return err
	}
	if says == "" {
		n.add(attachmentsOpen, try.user, "no policy confines %s to attachments of flex2csi", try.user)
	}
	if says, err = p.attach(ctx, try, anyDriver, false); err != nil {
		return err
	}
	if says == "" {
		n.add(driversOpen, try.user, "%s may attach volumes of any CSI driver", try.user)
	} else {
		n.add(driversConfined, try.user, "%s may not attach volumes of other CSI drivers", try.user).evidence(says)
	}
	for _, driver := range drivers {
		if says, err = p.attach(ctx, try, driver, false); err != nil {
			return err
		}
		if says != "" {
			n.add(attachDenied, driver, "a policy denies %s attachments of volumes of %s", try.user, driver).evidence(says)
		}
	}
	return nil
}

// mayNotAttach reports whether an error is about the right to VolumeAttachments, and not
// about another one, such as impersonation.
func mayNotAttach(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsForbidden(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "volumeattachments"
}
