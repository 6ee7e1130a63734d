// Package doctor looks at a node, at a cluster, or at both, and says what is
// wrong with FlexVolumes there: each finding with its evidence, the messages by
// which people meet it, and what to do.
//
// It changes nothing. All checks run at once, each with a deadline of its own
// and none waiting for another, and what may hang (a mount) is asked by a
// process that can be left behind. What could not be looked at is said, with
// the reason: silence means that it was looked at and is in order.
//
// The checks are one file each; kinds.go lists all that they can find.
package doctor

import (
	"context"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/controller"
	"github.com/flex2csi/flex2csi/internal/kubelet"
)

// A Cluster is asked about Kubernetes' objects. Each method may fail on its own,
// as for a token that may not read everything.
type Cluster interface {
	controller.View
	Version(ctx context.Context) (string, error)
	ListDrivers(ctx context.Context) ([]storagev1.CSIDriver, error)
	// NodeDrivers are the entries of the node's CSINode object.
	NodeDrivers(ctx context.Context, node string) ([]storagev1.CSINodeDriver, error)
	// Kubelet asks a kubelet for its configuration, through the API server.
	Kubelet(ctx context.Context, node string) (kubelet.Configuration, error)
	// DeniesInline is what a policy says to a pod with an inline volume of a driver;
	// empty if none denies it.
	DeniesInline(ctx context.Context, flexDriver string) (says string, err error)
	// User is who asks.
	User(ctx context.Context) (authenticationv1.UserInfo, error)
	// DeniesAttachment is what a policy says to a VolumeAttachment of a user, likewise;
	// without a name it is the one that asks. The error is the API server's Forbidden if
	// the user may make none.
	DeniesAttachment(ctx context.Context, as authenticationv1.UserInfo, o *storagev1.VolumeAttachment) (says string, err error)
}

// Options say where to look.
type Options struct {
	// Local: this machine is a node. Without it only the cluster is asked.
	Local bool
	// HostRoot is where the node's / is seen, in a container; its /proc is there,
	// too. Empty: /.
	HostRoot string
	// KubeletPID is for machines with several kubelets; zero: look for one.
	KubeletPID int
	// KubeletDir and PluginDir are set by the operator; empty: as the kubelet says.
	KubeletDir, PluginDir    string
	Config, Socket, StateDir string
	// NodeName is the node that the cluster is asked about; empty: find out, and
	// without Local all nodes.
	NodeName string

	// Cluster is asked if it is not nil; otherwise NoCluster says why not.
	Cluster   Cluster
	NoCluster string

	// Migrations returns those that stopped before the end; nil: not known.
	Migrations func(context.Context) ([]Migration, error)

	// ProbeDrivers runs init of each driver in the plugin directory, as the
	// kubelet does.
	ProbeDrivers bool
	// Timeout is that of each check.
	Timeout time.Duration
	// AskMounts is the command that answers about mounts ([AnswerMounts]).
	AskMounts []string
}

// check is one part of the examination.
type check struct {
	name string
	run  func(context.Context, *notes)
}

// DefaultTimeout is that of each check.
const DefaultTimeout = 10 * time.Second

// graceTime is how long a check may take to notice that its time is up.
const graceTime = time.Second

// Run looks at everything, and takes little longer than Options.Timeout.
func Run(ctx context.Context, o Options) *Report {
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	p := newProbe(o)
	checks := p.checks()
	all := make([]*notes, len(checks))
	ended := make([]chan struct{}, len(checks))
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	p.life = ctx
	for i, c := range checks {
		all[i], ended[i] = &notes{check: c.name}, make(chan struct{})
		go func() {
			defer close(ended[i])
			c.run(ctx, all[i])
		}()
	}
	over := time.After(o.Timeout + graceTime)
	r := newReport(p)
	for i := range checks {
		select {
		case <-ended[i]:
		case <-over:
			over = closedTime() // the others have had their time as well
		}
		select {
		case <-ended[i]:
		default:
			all[i].add(checkHangs, all[i].check, "no answer within %v; what it has found until then is listed", o.Timeout)
		}
		r.take(all[i])
	}
	r.finish()
	return r
}

// closedTime is a time that has come.
func closedTime() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}

// checks are all that there are. Those of the node come first.
func (p *probe) checks() []check {
	checks := []check{{"cluster", p.checkCluster}}
	if p.Cluster != nil {
		checks = append(checks,
			check{"nodes", p.checkNodes},
			check{"objects", p.checkObjects},
			check{"attachments", p.checkAttachments},
			check{"volumes-attached", p.checkVolumesAttached},
			check{"inline", p.checkInline},
			check{"policies", p.checkPolicies},
			check{"kubelets", p.checkKubelets})
	}
	if p.Migrations != nil {
		checks = append(checks, check{"migrations", p.checkMigrations})
	}
	if !p.Local {
		return checks
	}
	return append([]check{
		{"kubelet", p.checkKubelet},
		{"drivers", p.checkDrivers},
		{"configuration", p.checkConfiguration},
		{"daemon", p.checkDaemon},
		{"csi", p.checkCSI},
		{"propagation", p.checkPropagation},
		{"mounts", p.checkMounts},
		{"pods", p.checkPods},
	}, checks...)
}
