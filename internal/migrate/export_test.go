package migrate

import (
	"context"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/migrate/manifest"
)

// Render is what a plan makes of one volume, for tests without a cluster.
func Render(ctx context.Context, c *bridgeconfig.Configuration, raw []byte) (replacement []byte, v *Volume, err error) {
	drivers, err := (&Planner{Config: c}).drivers()
	if err != nil {
		return nil, nil, err
	}
	old, err := ParseObject(raw)
	if err != nil {
		return nil, nil, err
	}
	r, err := drivers[old.text("spec", "flexVolume", "driver")].render(ctx, old)
	if err != nil {
		return nil, nil, err
	}
	data, err := r.object.MarshalJSON()
	return data, &Volume{Checks: r.checks, Changes: r.changes, Secrets: r.secrets, Original: original(old)}, err
}

// YAMLOf writes JSON as YAML.
func YAMLOf(data []byte) ([]byte, error) { return manifest.YAML(data) }
