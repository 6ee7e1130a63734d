package local

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/flex2csi/flex2csi/internal/allow"
	"github.com/flex2csi/flex2csi/internal/driverconfig"
	"github.com/flex2csi/flex2csi/internal/guard"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// parseVolume turns options into a Volume. The error names all
// options that are unknown, contradicting or malformed.
func parseVolume(o flex.Options) (*Volume, error) {
	kind, err := chooseKind(o.User)
	if err != nil {
		return nil, err
	}
	v := &Volume{Kind: kind, Source: o.User[string(kind)], FSType: o.FSType, ReadOnly: o.ReadOnly}
	faults := v.checkNames(o.User)
	if garbled := checkCharacters(o); len(garbled) > 0 {
		return nil, invalid("%s", strings.Join(append(faults, garbled...), "; "))
	}
	faults = append(faults, v.read(o.User)...)
	faults = append(faults, v.check(o.User)...)
	if len(faults) > 0 {
		return nil, invalid("%s", strings.Join(faults, "; "))
	}
	return v, nil
}

func invalid(format string, args ...any) error {
	return flex.Errorf(flex.CodeInvalidArgument, "volume options: "+format, args...)
}

func chooseKind(user map[string]string) (sourceKind, error) {
	var given []string
	for kind := range kinds() {
		if _, ok := user[string(kind)]; ok {
			given = append(given, string(kind))
		}
	}
	slices.Sort(given)
	switch len(given) {
	case 1:
		return sourceKind(given[0]), nil
	case 0:
		return "", invalid("one of image, device, source, path and medium has to say what the volume is; %s", listKeys(user))
	}
	return "", invalid("%s contradict each other: a volume is one of image, device, source, path and medium", strings.Join(given, " and "))
}

func listKeys(user map[string]string) string {
	if len(user) == 0 {
		return "there are no options at all (spec.flexVolume.options)"
	}
	names := slices.Sorted(maps.Keys(user))
	for i, name := range names {
		names[i] = strconv.Quote(name)
	}
	return "there is only " + strings.Join(names, ", ")
}

// checkNames finds options that are unknown or belong to another kind.
func (v *Volume) checkNames(user map[string]string) []string {
	allowed := slices.Concat(kinds()[v.Kind], []string{optionMountOptions, optionSELinux})
	var faults []string
	for _, name := range slices.Sorted(maps.Keys(user)) {
		if !slices.Contains(allowed, name) {
			faults = append(faults, fmt.Sprintf("%q is not an option of a volume with %s (those are %s)%s", name, v.Kind, strings.Join(allowed, ", "), suggest(name, allowed)))
		}
	}
	return faults
}

// suggest helps with a wrong case or a plural, and with what belongs elsewhere.
func suggest(name string, allowed []string) string {
	simple := func(s string) string {
		s = strings.ReplaceAll(strings.ReplaceAll(s, "-", ""), "_", "")
		return strings.TrimSuffix(strings.ToLower(s), "s")
	}
	for _, a := range allowed {
		if simple(a) == simple(name) {
			return fmt.Sprintf("; did you mean %q?", a)
		}
	}
	switch {
	case name == "mkfsOptions":
		return "; it was removed: mkfs runs with its own defaults, so leave it out, or format the disk before the volume is used"
	case simple(name) == "fstype", simple(name) == "secretref":
		return "; it is a field of flexVolume, next to options"
	case simple(name) == "readonly":
		return "; write ro into mountOptions, or let the pod claim the volume read-only"
	case guard.SensitiveKey(name), simple(name) == "username", simple(name) == "user":
		return "; credentials belong into the Secret that secretRef names"
	}
	return ""
}

// read takes the values that have to be read.
func (v *Volume) read(user map[string]string) (faults []string) {
	if size, ok := user[optionSize]; ok {
		n, err := driverconfig.ParseQuantity(size)
		if err != nil {
			faults = append(faults, fmt.Sprintf("size %v", err))
		}
		v.Size = n
	} else if v.Kind == kindMemory {
		v.Size = defaultMemory
	}
	given, err := allow.SplitOptions(user[optionMountOptions])
	if err != nil {
		faults = append(faults, fmt.Sprintf("mountOptions: %v", err))
	}
	readOnly := slices.Contains(given, "ro")
	if readOnly && slices.Contains(given, "rw") {
		faults = append(faults, "mountOptions: ro and rw contradict each other")
	}
	v.ReadOnly = v.ReadOnly || readOnly
	v.MountOptions = slices.DeleteFunc(given, func(o string) bool { return o == "ro" || o == "rw" })
	if context := user[optionSELinux]; context != "" {
		v.MountOptions = append(v.MountOptions, contextOption(context))
	}
	return faults
}
