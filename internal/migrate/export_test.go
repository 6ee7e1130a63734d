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

// ChangedBy are the fields of a volume that were stored in another way.
func ChangedBy(want, stored []byte) ([]string, error) {
	w, s, err := both(want, stored)
	if err != nil {
		return nil, err
	}
	return changedBy(w.tree, s.tree), nil
}

// Matches reports whether a volume is the one that was to be created; created:
// it has the UID of that.
func Matches(want, is []byte, created bool) (bool, error) {
	w, s, err := both(want, is)
	if err != nil {
		return false, err
	}
	return matches(w.sub("spec"), s.sub("spec"), created), nil
}

func both(a, b []byte) (x, y *Object, err error) {
	if x, err = ParseObject(a); err != nil {
		return nil, nil, err
	}
	y, err = ParseObject(b)
	return x, y, err
}

// CopyCommand makes a Secret of another one.
func CopyCommand(s *SecretCopy) string { return copyCommand(s) }
