package bridgeconfig

import (
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/strict"
)

const (
	// maxExpression is generous. One that is longer is no expression.
	maxExpression = 4 << 10
	maxPattern    = 1 << 10
	maxSecretKey  = 253 // Kubernetes, IsConfigMapKey
	maxCSIName    = 63  // CSI specification, GetPluginInfoResponse
	maxSocket     = 107 // sun_path without its NUL, unix(7)
)

// validate returns nil or a [*strict.InvalidError] with all faults. It looks at
// the configuration only, not at the node.
func (c *Configuration) validate() error {
	r := strict.Report{Faults: append(versionFaults(c), c.faults()...)}
	return r.Err()
}

func versionFaults(c *Configuration) []strict.Fault {
	var r strict.Report
	r.Want("apiVersion", c.APIVersion, APIVersion, "flex2csi")
	r.Want("kind", c.Kind, Kind, "flex2csi")
	return r.Faults
}

func (c *Configuration) faults() []strict.Fault {
	v := &validator{byName: map[string]int{}, byCSIName: map[string]int{}, byNames: map[string]int{}, several: map[int]bool{}}
	if len(c.Drivers) == 0 {
		v.Fault("drivers", "missing: want at least one driver")
	}
	for i := range c.Drivers {
		v.driver(Path(i), &c.Drivers[i])
		v.against(c.Drivers, i)
	}
	return v.Faults
}

// Path returns where the driver with index i is in the file.
func Path(i int) string { return strict.Index("drivers", i) }

type validator struct {
	strict.Report
	byName, byCSIName, byNames map[string]int // the first driver of each name, and of both

	several map[int]bool // the first drivers of names that others have, too
}

func (v *validator) driver(at string, d *Driver) {
	v.flexName(at+".flexDriver", d.FlexDriver)
	v.csiName(at+".csiDriver", d.CSIDriver)
	if len(d.When) > maxExpression {
		v.Fault(at+".when", "longer than %d bytes", maxExpression)
	}
	v.socket(at+".endpoint", d.Endpoint)
	v.socket(at+".controllerEndpoint", d.ControllerEndpoint)
	v.attach(at, d)
	if d.FSGroup != "" {
		v.OneOf(at+".fsGroup", string(d.FSGroup), string(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy), string(storagev1.FileFSGroupPolicy), string(storagev1.NoneFSGroupPolicy))
	}
	v.pattern(at, d)
	for name, expression := range d.Volume.Expressions() {
		v.expression(at+".volume."+name, expression)
	}
	if len(d.ClassParameters) > maxExpression {
		v.Fault(at+".classParameters", "longer than %d bytes", maxExpression)
	}
	for _, stage := range slices.Sorted(maps.Keys(d.Secrets.stages())) {
		v.source(at+".secrets."+stage, *d.Secrets.stages()[stage])
		if expands := stage == "nodeExpand" || stage == "controllerExpand"; expands && d.Secrets.All()[stage].fromFlex() {
			v.Fault(at+".secrets."+stage+".fromFlexSecret", "is never there: the kubelet passes the Secret to mount only; use file or secretRef")
		}
	}
}

// against compares a driver with those before it.
func (v *validator) against(drivers []Driver, i int) {
	d, at := &drivers[i], Path(i)
	v.shared(drivers, i)
	first, ok := before(v.byCSIName, d.CSIDriver, i)
	if !ok {
		return
	}
	// A volume has one staging path on a node (CSI specification,
	// NodeStageVolume), whichever name it comes by.
	other := &drivers[first]
	same := func(field, mine, theirs string) {
		if mine != theirs {
			v.Fault(at+"."+field, "differs from that of %s, which has the same csiDriver", Path(first))
		}
	}
	same("endpoint", d.Endpoint, other.Endpoint)
	same("controllerEndpoint", d.ControllerEndpoint, other.ControllerEndpoint)
	same("attach", string(d.Attach), string(other.Attach))
}

// shared compares a driver with those before it that have its flexDriver. A call to unmount
// has no options: what is asked before the record is known must be the same for all.
func (v *validator) shared(drivers []Driver, i int) {
	d, at := &drivers[i], Path(i)
	first, shares := before(v.byName, d.FlexDriver, i)
	_, twice := before(v.byNames, d.FlexDriver+" "+d.CSIDriver, i)
	if !shares {
		return
	}
	v.wantWhen(drivers, first, i)
	if twice && d.CSIDriver != "" {
		v.Fault(at+".csiDriver", "%q is that of another entry with the same flexDriver: make one entry of both, with an expression such as 'X ? A : B' in volume", strict.Clip(d.CSIDriver))
	}
	same := func(field string, mine, theirs bool) {
		if mine != theirs {
			v.Fault(at+"."+field, "differs from that of %s, which has the same flexDriver", Path(first))
		}
	}
	same("inline", d.Inline, drivers[first].Inline)
}

// wantWhen reports the first driver of a name once, when the second one is seen.
func (v *validator) wantWhen(drivers []Driver, first, i int) {
	which := []int{i}
	if !v.several[first] {
		v.several[first] = true
		which = []int{first, i}
	}
	for _, j := range which {
		if strings.TrimSpace(drivers[j].When) == "" {
			v.Fault(Path(j)+".when", "missing: %s and %s have the same flexDriver, so each needs an expression that says which volumes are its own, such as 'fsType == \"ext4\"'", Path(first), Path(i))
		}
	}
}

// before returns the first driver of a name, or makes i the first.
func before(first map[string]int, name string, i int) (int, bool) {
	if name == "" {
		return 0, false
	}
	j, ok := first[name]
	if !ok {
		first[name] = i
	}
	return j, ok
}

func (v *validator) flexName(at, name string) {
	if name == "" {
		v.Fault(at, "missing (want \"vendor/name\", as in spec.flexVolume.driver)")
	} else if _, err := driverconfig.ParseDriverName(name); err != nil {
		v.Fault(at, "%v", err)
	}
}

// csiName as in the CSI specification, GetPluginInfoResponse.name.
func (v *validator) csiName(at, name string) {
	switch {
	case name == "":
		v.Fault(at, "missing (want the name that the CSI driver gives itself, such as disk.csi.example.com)")
	case len(name) > maxCSIName:
		v.Fault(at, "%q is longer than %d bytes", strict.Clip(name), maxCSIName)
	case !madeOf(name, "-.") || strings.Trim(name, "-.") != name:
		v.Fault(at, "%q is no name of a CSI driver: letters, digits, '-' and '.' are allowed, a letter or digit at both ends", strict.Clip(name))
	}
}

func (v *validator) socket(at, endpoint string) {
	if endpoint == "" {
		return
	}
	path := SocketPath(endpoint)
	switch {
	case !strings.HasPrefix(path, "/"):
		v.Fault(at, "%q is no socket: want unix:///path or /path", strict.Clip(endpoint))
	case len(path) > maxSocket:
		v.Fault(at, "the path is longer than the %d bytes that a socket's may have", maxSocket)
	default:
		v.AbsPath(at, path)
	}
}

// SocketPath returns the path of an endpoint, which is unix:///path or a path.
func SocketPath(endpoint string) string {
	if rest, ok := strings.CutPrefix(endpoint, "unix://"); ok {
		return rest
	}
	return strings.TrimPrefix(endpoint, "unix:")
}

func (v *validator) attach(at string, d *Driver) {
	v.OneOf(at+".attach", string(d.Attach), string(AttachAuto), string(AttachNone), string(AttachController), string(AttachVA))
	if s := d.Secrets.ControllerPublish; d.Attach == AttachVA && s != nil && s.SecretRef == nil {
		v.Fault(at+".secrets.controllerPublish", "want secretRef: with attach: %s the external-attacher reads the Secret by itself", AttachVA)
	}
	if d.Attach == AttachController && d.ControllerEndpoint == "" {
		v.Fault(at+".controllerEndpoint", "missing: attach is %q", AttachController)
	}
}

func (v *validator) pattern(at string, d *Driver) {
	at += ".pvNamePattern"
	switch {
	case d.PVNamePattern == "":
		return
	case d.Inline:
		v.Fault(at, "has no effect with inline: true (an inline volume may have any name)")
	case len(d.PVNamePattern) > maxPattern:
		v.Fault(at, "longer than %d bytes", maxPattern)
	}
	if _, err := regexp.Compile(d.PVNamePattern); err != nil {
		v.Fault(at, "%q is no regular expression of Go (RE2)", strict.Clip(d.PVNamePattern))
	}
}

// Expressions returns the expressions by the names of their fields, in order.
func (e *VolumeMapping) Expressions() iter.Seq2[string, string] {
	return func(yield func(name, expression string) bool) {
		_ = yield("handle", e.Handle) && yield("context", e.Context) && yield("mountFlags", e.MountFlags) &&
			yield("fsType", e.FSType) && yield("accessMode", e.AccessMode)
	}
}

func (v *validator) expression(at, expression string) {
	switch {
	case strings.TrimSpace(expression) == "":
		v.Fault(at, "empty (leave it out for the default; the empty text is '\"\"')")
	case len(expression) > maxExpression:
		v.Fault(at, "longer than %d bytes", maxExpression)
	}
}

// madeOf reports whether s is made of letters, digits and some others.
func madeOf(s, others string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune(others, r))
	})
}
