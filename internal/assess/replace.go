package assess

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// ClassOptions are what the operator decides about StorageClasses.
type ClassOptions struct {
	// Names are those of the classes; none: all that make FlexVolumes.
	Names []string
	// Suffix is what the new classes' names have more; empty: they have the same names.
	Suffix string
	// Config has the CSI drivers and the translation of parameters; without a driver in it
	// its migrated volumes and presets count.
	Config *bridgeconfig.Configuration
	// Command prints this plan again, without names; for the commands in it.
	Command string
}

// A ClassPlan has the CSI StorageClasses in place of those that make FlexVolumes, and what
// is to be done with the objects that name these.
type ClassPlan struct {
	source  string
	classes []*newClass
	steps   []classStep
	unread  []string
	options *ClassOptions
}

// newClass is the StorageClass in place of another.
type newClass struct {
	old    *objects.FlexClass
	object *storagev1.StorageClass
	// fillIn are the fields of object that only the operator knows, and what belongs there.
	fillIn map[string]string
	// made: a class of the name is there, with the same provisioner.
	made bool
	// blocked is why object cannot be created; empty: it can.
	blocked string
	// refused are claims that the CSI provisioner makes no volumes for.
	refused []string
	decide  []string
	// named counts what names the old class.
	named map[itemKind]int
}

func (c *newClass) complete() bool { return len(c.fillIn) == 0 && c.blocked == "" }

// ReplaceClasses makes the plan.
func ReplaceClasses(in *Input, o *ClassOptions) (*ClassPlan, error) {
	all, err := bridgeconfig.Presets()
	if err != nil {
		return nil, err
	}
	found := objects.FindFlexClasses(in.StorageClasses, in.PersistentVolumes, in.CSIDrivers)
	plan := &ClassPlan{source: in.Source, unread: in.Unread, options: o}
	r := replacer{in, o, all, found, map[string]*newClass{}}
	for _, old := range found.All() {
		if len(o.Names) == 0 || slices.Contains(o.Names, old.Name) {
			c := r.replace(old)
			r.classes[old.Name] = c
			plan.classes = append(plan.classes, c)
		}
	}
	for _, name := range o.Names {
		if r.classes[name] == nil {
			return nil, fmt.Errorf("replace StorageClass %s: it does not make FlexVolumes, or was not found; without names the command lists those that do", name)
		}
	}
	plan.steps = r.users()
	return plan, nil
}

type replacer struct {
	*Input
	options *ClassOptions
	presets presets
	found   *objects.FlexClasses
	classes map[string]*newClass // by the old name
}

// replace makes the class in place of one.
func (r *replacer) replace(old *objects.FlexClass) *newClass {
	c := &newClass{old: old, fillIn: map[string]string{}, named: map[itemKind]int{}}
	csiDriver, expression, from := r.target(old)
	c.object = replacement(old.StorageClass, old.Name+r.options.Suffix, csiDriver)
	if r.found.IsEffectiveDefault(old.Name) { // of several that are marked the newest is it, which the new one would be
		c.object.Annotations = map[string]string{objects.Default: "true"}
	}
	switch {
	case csiDriver == "":
		c.fillIn["provisioner"] = "the name of the CSI driver for FlexVolume driver " + old.FlexDriver
	case from != "":
		c.decide = append(c.decide, fmt.Sprintf("see that CSI driver %s is yours: it is that of preset %s", csiDriver, from))
	}
	if csiDriver != "" && r.CSIDrivers != nil && !slices.Contains(r.CSIDrivers, csiDriver) {
		c.decide = append(c.decide, "install CSI driver "+csiDriver+" first: there is no CSIDriver object of it")
	}
	r.parameters(c, expression)
	r.there(c)
	c.decisions()
	return c
}

// replacement is a class with all of the old one but its provisioner and parameters. Labels
// and annotations are not copied: a tool would take the new class for its own.
func replacement(old *storagev1.StorageClass, name, csiDriver string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		TypeMeta:    metav1.TypeMeta{APIVersion: storagev1.SchemeGroupVersion.String(), Kind: "StorageClass"},
		ObjectMeta:  metav1.ObjectMeta{Name: name},
		Provisioner: csiDriver, ReclaimPolicy: old.ReclaimPolicy, MountOptions: old.MountOptions, AllowVolumeExpansion: old.AllowVolumeExpansion,
		VolumeBindingMode: old.VolumeBindingMode, AllowedTopologies: old.AllowedTopologies,
	}
}

// target is the CSI driver of a class, and the translation of its parameters; empty: not
// known. From is the preset that alone knows the driver.
func (r *replacer) target(old *objects.FlexClass) (csiDriver, expression, from string) {
	p, fits := r.presets.fit(old.FlexDriver, "")
	configured := r.configured(old, p)
	switch {
	case configured != nil:
		csiDriver, expression = configured.CSIDriver, configured.ClassParameters
	case old.CSIDriver != "":
		csiDriver = old.CSIDriver
	case fits:
		csiDriver, from = p.CSIDriver, p.Name
		if i := slices.IndexFunc(r.CSIDrivers, func(name string) bool { return isDriver(p, name) }); i >= 0 {
			csiDriver = r.CSIDrivers[i]
		}
	}
	if expression == "" && fits && isDriver(p, csiDriver) {
		expression = p.ClassParameters
	}
	return csiDriver, expression, from
}

// configured is the driver of the configuration: of several with the FlexVolume driver's name
// the one that volumes of the class were migrated to, or that of the preset. Rook's
// provisioner does not tell the name of its FlexVolume driver, which is that of the
// operator's namespace.
func (r *replacer) configured(old *objects.FlexClass, p bridgeconfig.Preset) *bridgeconfig.Driver {
	if r.options.Config == nil {
		return nil
	}
	all := r.options.Config.Drivers
	ofPreset := func(d bridgeconfig.Driver) bool { return p.Name != "" && isDriver(p, d.CSIDriver) }
	named := slices.DeleteFunc(slices.Clone(all), func(d bridgeconfig.Driver) bool { return d.FlexDriver != old.FlexDriver })
	for _, choice := range []func(bridgeconfig.Driver) bool{
		func(bridgeconfig.Driver) bool { return len(named) == 1 },
		func(d bridgeconfig.Driver) bool { return d.CSIDriver == old.CSIDriver },
		ofPreset,
	} {
		if i := slices.IndexFunc(named, choice); i >= 0 {
			return &named[i]
		}
	}
	if i := slices.IndexFunc(all, ofPreset); i >= 0 && len(named) == 0 {
		return &all[i]
	}
	return nil
}

// parameters translates those of the old class.
func (r *replacer) parameters(c *newClass, expression string) {
	parameters, err := mapping.ClassParameters(expression, c.old.Parameters)
	switch {
	case err != nil:
		c.fillIn["parameters"] = err.Error()
	case expression == "":
		c.fillIn["parameters"] = "those that the CSI driver wants; the old class has " + texts(c.old.Parameters)
	default:
		c.object.Parameters = parameters
	}
}

// there compares with a class that has the new name already.
func (r *replacer) there(c *newClass) {
	name := c.object.Name
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		c.blocked = fmt.Sprintf("%q is no name of a StorageClass: %s", name, problems[0])
		return
	}
	i := slices.IndexFunc(r.StorageClasses, func(o *storagev1.StorageClass) bool { return o.Name == name })
	if i < 0 || name == c.old.Name {
		return
	}
	is := r.StorageClasses[i]
	isCSI := c.object.Provisioner == is.Provisioner || c.object.Provisioner == "" && slices.Contains(r.CSIDrivers, is.Provisioner)
	if !isCSI {
		c.blocked = fmt.Sprintf("StorageClass %s is there, with provisioner %s: choose another --suffix, or --same-name", name, is.Provisioner)
		return
	}
	if c.made = true; len(c.fillIn) == 0 && !maps.Equal(is.Parameters, c.object.Parameters) {
		c.decide = append(c.decide, fmt.Sprintf("compare the parameters of StorageClass %s, which is there, %s, with those translated, %s", name, texts(is.Parameters), texts(c.object.Parameters)))
	}
	c.object.Provisioner, c.object.Parameters = is.Provisioner, is.Parameters // the operator's count
	clear(c.fillIn)
}

// decisions are about what is kept, and may mean something else.
func (c *newClass) decisions() {
	if why := known(c.old.FlexDriver); why != "" {
		c.decide = append(c.decide, "FlexVolume driver "+c.old.FlexDriver+": "+why)
	}
	if len(c.old.AllowedTopologies) > 0 {
		c.decide = append(c.decide, "see that the keys of allowedTopologies are those of the CSI driver")
	}
	if len(c.old.MountOptions) > 0 {
		c.decide = append(c.decide, "see that the CSI driver takes mountOptions "+strings.Join(c.old.MountOptions, ",")+": with FlexVolumes they had no effect")
	}
	if owners := migrate.OwnersOf(c.old.StorageClass); len(owners) > 0 {
		c.decide = append(c.decide, "change the class in its source: it belongs to "+strings.Join(owners, ", "))
	}
}

// texts shows parameters.
func texts(parameters map[string]string) string {
	if len(parameters) == 0 {
		return "none"
	}
	var all []string
	for _, key := range slices.Sorted(maps.Keys(parameters)) {
		all = append(all, key+"="+parameters[key])
	}
	return strings.Join(all, ", ")
}
