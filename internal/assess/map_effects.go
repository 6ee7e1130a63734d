package assess

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// effects finds the options of volumes without an effect on any request. An option that has one
// in a volume of a driver counts as read in all of them.
type effects struct {
	mappers mapping.Mappers
	read    map[string]bool // by FlexVolume driver and option
	tried   map[string]int  // volumes in which it had none
}

// enough is how many volumes are mapped without an option before it counts as one that is not
// read: there may be thousands.
const enough = 100

// idle returns the options of a volume that the mapping does not read: it is mapped without
// each, and with other values.
func (e *effects) idle(driver string, v *FlexVolume) (names []string) {
	var was any
	for _, name := range slices.Sorted(maps.Keys(v.Options.User)) {
		key := driver + " " + name
		if !e.read[key] && e.tried[key] < enough {
			if was == nil {
				was = e.mapped(driver, v, v.Options.User)
			}
			e.read[key] = e.matters(driver, v, name, was)
			e.tried[key]++
		}
		if !e.read[key] {
			names = append(names, name)
		}
	}
	return names
}

func (e *effects) matters(driver string, v *FlexVolume, name string, was any) bool {
	options := maps.Clone(v.Options.User)
	delete(options, name)
	if !reflect.DeepEqual(e.mapped(driver, v, options), was) {
		return true
	}
	for _, value := range []string{v.Options.User[name] + "1", "true"} {
		options[name] = value
		if !reflect.DeepEqual(e.mapped(driver, v, options), was) {
			return true
		}
	}
	return false
}

// mapped is what the options make: which driver, and the volume or the error. The kubelet's own
// options and the secrets stay.
func (e *effects) mapped(driver string, v *FlexVolume, user map[string]string) any {
	options := flex.Options{VolumeName: v.Options.VolumeName, FSType: v.Options.FSType, User: user, PodName: v.Options.PodName, PodNamespace: v.Options.PodNamespace, PodUID: v.Options.PodUID}
	i, err := e.mappers.Choose(driver, options)
	if err != nil {
		return err.Error()
	}
	pv := &csivol.PersistentVolume{}
	for _, mode := range v.accessModes {
		pv.AccessModes = append(pv.AccessModes, csivol.AccessMode(mode))
	}
	volume, err := e.mappers[i].WithoutSecrets().Map(context.Background(), options, pv)
	if err != nil {
		return err.Error()
	}
	return volume
}

// emptyValues are the keys of a volume context without a value.
func emptyValues(mapped *csivol.Volume) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(mapped.Context)) {
		if mapped.Context[key] == "" {
			keys = append(keys, key)
		}
	}
	return keys
}
