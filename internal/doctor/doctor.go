// Package doctor looks at a node, at a cluster, or at both, and says what is
// wrong with FlexVolumes there: each finding with its evidence, the messages by
// which people meet it, and what to do.
//
// It changes nothing. All checks run at once, each with a deadline of its own
// and none waiting for another, and what may hang (a mount) is asked by a
// process that can be left behind. What could not be looked at is said, with
// the reason: silence means that it was looked at and is in order.
//
// checks (below) names the checks and their functions. What they can find is in
// kinds*.go and migrations.go.
package doctor

import (
	"context"
	"time"
)

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
			all[i].add(hangingCheck, all[i].check, "no answer within %v; what it has found until then is listed", o.Timeout)
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
		asked := []check{
			{"nodes", p.checkNodes},
			{"objects", p.checkObjects},
			{"attachments", p.checkAttachments},
			{"volumes-attached", p.checkVolumesAttached},
			{"inline", p.checkInline},
			{"policies", p.checkPolicies},
			{"kubelets", p.checkKubelets},
		}
		if p.DaemonSets != nil {
			asked = append(asked, check{"installers", p.checkInstallers})
		}
		if p.Migrations != nil {
			asked = append(asked, check{"migrations", p.checkMigrations})
		}
		for _, c := range asked {
			checks = append(checks, p.reached(c))
		}
	}
	if !p.Local {
		return checks
	}
	return append(p.nodeChecks(), checks...)
}
