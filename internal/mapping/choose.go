package mapping

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"

	"github.com/flex2csi/flex2csi/pkg/flex"
)

const whenField = "when"

// Mappers are those of a configuration, in the order of its drivers.
type Mappers []*Mapper

// Choose returns the index of the driver that a volume of a FlexVolume driver belongs to,
// by its name, fsType and options: that of the one driver with a true when, or without one.
func (m Mappers) Choose(flexDriver string, o flex.Options) (int, error) {
	chosen := -1
	var asked []string
	for i, mapper := range m {
		if mapper.flexDriver != flexDriver {
			continue
		}
		applies, err := mapper.applies(o)
		if err != nil {
			return -1, mapper.refuse(o, "%s", err)
		}
		switch {
		case !applies:
			asked = append(asked, fmt.Sprintf("%s for %s", mapper.when, mapper.csiDriver))
		case chosen >= 0:
			return -1, mapper.refuse(o, "it is one of the CSI driver %s and of %s: %s and %s are both true; change one of them", m[chosen].csiDriver, mapper.csiDriver, m[chosen].when, mapper.when)
		default:
			chosen = i
		}
	}
	switch {
	case chosen >= 0:
		return chosen, nil
	case len(asked) == 0:
		return -1, flex.Errorf(flex.CodeFailedPrecondition, "the configuration has no driver %s", flexDriver)
	}
	return -1, refuse(flexDriver, o, "no when of the configuration is true for it (%s): change one of them, or add a driver", strings.Join(asked, ", "))
}

// applies reports whether a volume of the FlexVolume driver is one of this CSI driver.
func (m *Mapper) applies(o flex.Options) (bool, error) {
	if m.when == nil {
		return true, nil
	}
	var applies bool
	err := result(m.when, variables(o, nil), &applies)
	return applies, err
}

func (m *Mapper) refuse(o flex.Options, format string, args ...any) error {
	return refuse(m.flexDriver, o, format, args...)
}

// refuse is an error without secrets.
func refuse(flexDriver string, o flex.Options, format string, args ...any) error {
	text := flex.NewRedactor(o).Redact(fmt.Sprintf(format, args...))
	return flex.Errorf(flex.CodeInvalidArgument, "choose a CSI driver for volume %q of driver %s: %s", o.VolumeName, flexDriver, text)
}

// whenVariables are those of when: what each callout with options and each PersistentVolume
// tells, and never differs between two pods.
func whenVariables() []cel.EnvOption {
	return []cel.EnvOption{
		cel.Variable("options", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("pvName", cel.StringType),
		cel.Variable("fsType", cel.StringType),
	}
}

// compileWhen returns nil for no expression.
func compileWhen(env *cel.Env, expression string) (*program, error) {
	if strings.TrimSpace(expression) == "" {
		return nil, nil
	}
	return compile(env, whenField, expression, cel.BoolType)
}
