package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// A Planner makes plans.
type Planner struct {
	Client *objects.Client
	Config *bridgeconfig.Configuration
	// Secrets are Secrets for stages with their secrets in a file of the nodes, by
	// vendor/name:stage.
	Secrets map[string]csivol.SecretRef
	// Namespace of flex2csi; empty: the usual one.
	Namespace string
	Server    string
	Now       func() time.Time
	// WithoutDryRun: a plan does not have the API server check the replacements.
	WithoutDryRun bool
	// Makers: a plan of all volumes also has what could make FlexVolumes, of any kind.
	Makers bool

	feeds *feeds // nil: all is listed
	// compiled are the expressions of Config: to compile them for each volume takes longer than
	// to check it.
	compile    sync.Once
	compiled   mapping.Mappers
	compileErr error
}

// ErrNothing says that no volume was selected.
var ErrNothing = errors.New("no FlexVolume is selected: flex2csi migrate plan --all shows all that there are")

// Plan looks at the volumes that are selected. An error is one of the whole; what
// is wrong with a volume is in its checks.
func (p *Planner) Plan(ctx context.Context, s *Selection) (*Plan, error) {
	drivers, err := p.drivers()
	if err != nil {
		return nil, err
	}
	w := newWorld(p.Client, p.feeds)
	w.now = p.Now().UTC()
	w.untried = p.untried(ctx, "create")
	w.kept = p.untried(ctx, "delete", "patch")
	found, err := s.find(ctx, w, drivers)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 && !s.All {
		return nil, ErrNothing
	}
	plan := &Plan{APIVersion: apiVersion, Kind: planKind, Made: w.now, Server: p.Server, Volumes: []*PlannedVolume{}}
	for _, o := range found {
		plan.Volumes = append(plan.Volumes, w.check(ctx, drivers, o))
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("looked at %d of %d volumes: %w", len(plan.Volumes), len(found), context.Cause(ctx))
		}
	}
	plan.Checks = append(plan.Checks, p.checkRights(ctx, plan.Volumes))
	plan.Checks = append(plan.Checks, checkRestarts(plan.Volumes)...)
	b := related{w: w, drivers: drivers, selection: s, makers: s.All && p.Makers}
	if plan.Related, err = b.find(ctx, found); err != nil {
		plan.Checks = append(plan.Checks, Check{Name: "related", Status: Unanswered, Evidence: fmt.Sprintf("what goes with the volumes (StorageClasses, StatefulSets, inline volumes) is not known: %v", err)})
	}
	for _, text := range b.unread {
		plan.Checks = append(plan.Checks, Check{Name: "related", Status: Note, Evidence: "what makes pods with FlexVolumes is not all known: " + text, Do: "read it with other rights (docs/migrate.md, Rights), or see that it has none"})
	}
	return plan, nil
}

// untried is why a plan does without dry runs. The right to make them is that to
// create PersistentVolumes, also such as mount a directory of a node; who only plans
// need not have it. What is not known is tried.
func (p *Planner) untried(ctx context.Context, verbs ...string) string {
	if p.WithoutDryRun {
		return "--dry-run-server=false"
	}
	for _, verb := range verbs {
		right := authorizationv1.ResourceAttributes{Verb: verb, Resource: objects.PersistentVolumes().Resource.Resource}
		if may, err := p.Client.May(ctx, right); err == nil && !may {
			return "this user may not " + objects.AccessText(right)
		}
	}
	return ""
}

// checkRestarts says which pods --rolling restarts more than once, and which take longer to end
// than it waits unless it is told to.
func checkRestarts(volumes []*PlannedVolume) (all []Check) {
	restarts := map[string][]string{}
	for _, v := range volumes {
		if v.Method == PodRestart {
			restarts[v.Pods[0].Name] = append(restarts[v.Pods[0].Name], v.Name)
			if why := graceTooLong(v, defaultTimeout); why != "" {
				all = append(all, Check{Name: "restarts", Status: Note, Evidence: "PersistentVolume " + v.Name + ": " + why})
			}
		}
	}
	for _, pod := range slices.Sorted(maps.Keys(restarts)) {
		if names := restarts[pod]; len(names) > 1 {
			all = append(all, Check{
				Name: "restarts", Status: Note, Evidence: fmt.Sprintf("--rolling restarts pod %s %d times: once for each of %s", pod, len(names), list(names)),
				Do: "--offline, with the pod stopped, stops it once",
			})
		}
	}
	return all
}

// Unknown are the volumes of which a check had no answer.
func (p *Plan) Unknown() (names []string) {
	for _, v := range p.Volumes {
		if v.Method == Unknown {
			names = append(names, v.Name)
		}
	}
	return names
}

// recheck checks one volume by the cluster as it is now.
func (p *Planner) recheck(ctx context.Context, c *objects.Client, name string) (*PlannedVolume, error) {
	drivers, err := p.drivers()
	if err != nil {
		return nil, err
	}
	w := newWorld(c, p.feeds)
	w.now, w.decides = p.Now(), true
	o, err := w.volume(ctx, name)
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, terminal("PersistentVolume %s is gone: another client has deleted it; the journal has it, flex2csi migrate rollback creates it again", name)
	}
	return w.check(ctx, drivers, o), nil
}

// drivers returns those of the configuration.
func (p *Planner) drivers() (*drivers, error) {
	p.compile.Do(func() { p.compiled, p.compileErr = mapping.Compile(p.Config) })
	if p.compileErr != nil {
		return nil, p.compileErr
	}
	d := &drivers{choose: p.compiled.Choose}
	for i := range p.Config.Drivers {
		d.all = append(d.all, &driver{config: &p.Config.Drivers[i], mapper: p.compiled[i], given: map[string]csivol.SecretRef{}})
	}
	for name, ref := range p.Secrets {
		flexDriver, stage, _ := strings.Cut(name, ":")
		if !d.has(flexDriver) {
			return nil, fmt.Errorf("a Secret is given for driver %s, which the configuration does not have", flexDriver)
		}
		if !d.give(flexDriver, stage, ref) {
			return nil, fmt.Errorf("a Secret is given for secrets.%s of driver %s, which the configuration does not have", stage, flexDriver)
		}
	}
	return d, nil
}
