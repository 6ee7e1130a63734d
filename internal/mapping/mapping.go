// Package mapping maps a FlexVolume to a CSI volume: it evaluates the CEL expressions of
// a driver over the options of a call, gathers the secrets of each stage, and refuses
// values that are not valid for a CSI driver.
//
// Where several CSI drivers stand behind one FlexVolume driver it chooses the one of a
// volume.
//
// Expressions are compiled and type-checked when the configuration is loaded. They see
// options, pvName, fsType, readOnly, accessModes and pod, never a secret, and their cost
// is bounded. docs/mapping.md explains how to write them.
package mapping

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A Mapper is the mapping of one driver. It is safe for concurrent use.
type Mapper struct {
	flexDriver, csiDriver string

	when                                            *program // nil: all volumes of flexDriver
	handle, context, mountFlags, fsType, accessMode *program

	stages     []stage
	readFile   fileReader
	readSecret secretReader   // nil: no API server
	pvName     *regexp.Regexp // nil: any
}

// Check compiles all expressions and reports their faults. It is a
// [bridgeconfig.Check].
func Check(c *bridgeconfig.Configuration) []strict.Fault {
	_, faults := compileAll(c)
	return faults
}

// Compile returns the mappers of a configuration. Its error is a [*strict.InvalidError]
// with all faults.
func Compile(c *bridgeconfig.Configuration) (Mappers, error) {
	mappers, faults := compileAll(c)
	r := strict.Report{Faults: faults}
	return mappers, r.Err()
}

func compileAll(c *bridgeconfig.Configuration) (Mappers, []strict.Fault) {
	var r strict.Report
	env, err := newEnv(volumeVariables()...)
	whenEnv, whenErr := newEnv(whenVariables()...)
	if err := errors.Join(err, whenErr); err != nil {
		r.Fault("", "prepare CEL: %v", err)
		return nil, r.Faults
	}
	mappers := make(Mappers, len(c.Drivers))
	for i := range c.Drivers {
		d, at := &c.Drivers[i], bridgeconfig.Path(i)
		mappers[i] = newMapper(env, d, &r, at)
		if mappers[i].when, err = compileWhen(whenEnv, d.When); err != nil {
			r.Fault(at+"."+whenField, "%v", err)
		}
	}
	return mappers, r.Faults
}

func newMapper(env *cel.Env, d *bridgeconfig.Driver, r *strict.Report, at string) *Mapper {
	m := &Mapper{
		flexDriver: d.FlexDriver,
		csiDriver:  d.CSIDriver,
		stages:     stages(&d.Secrets),
		readFile:   readSecrets,
	}
	programs := map[string]struct {
		dst  **program
		want *cel.Type
	}{
		"handle":     {&m.handle, cel.StringType},
		"context":    {&m.context, cel.MapType(cel.StringType, cel.StringType)},
		"mountFlags": {&m.mountFlags, cel.ListType(cel.StringType)},
		"fsType":     {&m.fsType, cel.StringType},
		"accessMode": {&m.accessMode, cel.StringType},
	}
	for name, expression := range d.Volume.Expressions() {
		if strings.TrimSpace(expression) == "" {
			continue // bridgeconfig reports it
		}
		p, err := compile(env, "volume."+name, expression, programs[name].want)
		if err != nil {
			r.Fault(at+".volume."+name, "%v", err)
		}
		*programs[name].dst = p
	}
	if _, err := compileClass(d.ClassParameters); err != nil {
		r.Fault(at+"."+classField, "%v", err)
	}
	if d.PVNamePattern != "" && !d.Inline {
		pattern, err := regexp.Compile(`\A(?:` + d.PVNamePattern + `)\z`)
		if err != nil {
			r.Fault(at+".pvNamePattern", "no regular expression of Go (RE2)")
		}
		m.pvName = pattern
	}
	return m
}

// Map returns the volume for the options of a call and its PersistentVolume; nil if that
// is not known. Its error is a [*flex.Error] with all faults and without secrets.
func (m *Mapper) Map(ctx context.Context, o flex.Options, pv *csivol.PersistentVolume) (*csivol.Volume, error) {
	v, err := m.mapOptions(ctx, o, pv)
	if err != nil {
		text := flex.NewRedactor(o).Redact(err.Error())
		return nil, flex.Errorf(flex.CodeOf(err), "%s", text)
	}
	return v, nil
}

func (m *Mapper) mapOptions(ctx context.Context, o flex.Options, pv *csivol.PersistentVolume) (*csivol.Volume, error) {
	if err := m.checkName(o.VolumeName); err != nil {
		return nil, err
	}
	if pv == nil {
		pv = &csivol.PersistentVolume{}
	}
	v := &csivol.Volume{
		FlexDriver: m.flexDriver,
		Driver:     m.csiDriver,
		Name:       o.VolumeName,
		ReadOnly:   o.ReadOnly,
		FSGroup:    o.FSGroup,

		AccessModes: pv.AccessModes,
		Claim:       pv.Claim,

		Pod: csivol.Pod{Name: o.PodName, Namespace: o.PodNamespace, UID: o.PodUID, ServiceAccount: o.ServiceAccountName},
	}
	if problems := append(m.evaluate(v, variables(o, pv.AccessModes)), check(v)...); len(problems) > 0 {
		return nil, flex.Errorf(flex.CodeInvalidArgument, "the options of volume %q make no volume of the CSI driver %s: %s", o.VolumeName, m.csiDriver, strings.Join(problems, "; "))
	}
	secrets, err := m.secrets(ctx, o)
	if err != nil {
		return nil, err
	}
	v.Secrets = secrets
	return v, nil
}

// checkName refuses inline volumes, as far as a call shows that it is for one. The
// kubelet passes the name of the PersistentVolume or, in the same option, the pod's name
// of an inline volume (pkg/volume/flexvolume/driver-call.go, NewOptionsForDriver,
// Kubernetes v1.37.1).
func (m *Mapper) checkName(name string) error {
	if m.pvName == nil || m.pvName.MatchString(name) {
		return nil
	}
	return flex.Errorf(flex.CodePermissionDenied, "the volume is called %q, which is no name of a PersistentVolume according to pvNamePattern (driver %s): inline volumes are not allowed", name, m.flexDriver)
}

// variables returns the variables of expressions. The pod is missing, not empty, if the
// kubelet does not pass it: a handle of empty values could be that of another volume.
func variables(o flex.Options, modes []csivol.AccessMode) map[string]any {
	options := o.User
	if options == nil {
		options = map[string]string{}
	}
	accessModes := make([]string, len(modes))
	for i, mode := range modes {
		accessModes[i] = string(mode)
	}
	vars := map[string]any{"options": options, "pvName": o.VolumeName, "fsType": o.FSType, "readOnly": o.ReadOnly, "accessModes": accessModes}
	if o.PodUID != "" {
		vars["pod"] = &Pod{Name: o.PodName, Namespace: o.PodNamespace, UID: o.PodUID, ServiceAccount: o.ServiceAccountName}
	}
	return vars
}

// evaluate sets the fields of the volume and returns all errors.
func (m *Mapper) evaluate(v *csivol.Volume, vars map[string]any) (problems []string) {
	var accessMode string
	for _, err := range []error{
		result(m.handle, vars, &v.Handle),
		result(m.context, vars, &v.Context),
		result(m.mountFlags, vars, &v.MountFlags),
		result(m.fsType, vars, &v.FSType),
		result(m.accessMode, vars, &accessMode),
	} {
		if err != nil {
			problems = append(problems, err.Error())
		}
	}
	v.AccessMode = csivol.AccessMode(accessMode)
	if len(problems) > 0 {
		return problems // fields without a value would be reported once more
	}
	if v.Handle == "" {
		problems = append(problems, fmt.Sprintf("the handle is empty: give the volume the option volumeHandle or volumeID, or say in the configuration what its handle is; now it is %s", m.handle))
	}
	switch v.AccessMode {
	case "": // not known
	case csivol.ReadWriteOnce, csivol.ReadOnlyMany, csivol.ReadWriteMany, csivol.ReadWriteOncePod:
	default:
		problems = append(problems, fmt.Sprintf("%q is no access mode (want ReadWriteOnce, ReadOnlyMany, ReadWriteMany or ReadWriteOncePod); it comes from %s", strict.Clip(accessMode), m.accessMode))
	}
	return problems
}

func result[T any](p *program, vars map[string]any, dst *T) error {
	value, err := p.eval(vars)
	if err != nil {
		return err
	}
	*dst, err = native[T](p, value)
	return err
}
