package doctor

import (
	"context"
)

// checkInline: whether pods may have inline volumes of drivers for which the
// configuration does not say so.
func (p *probe) checkInline(ctx context.Context, n *notes) {
	const what = "whether a policy denies pods inline volumes"
	config, err := p.config()
	if err != nil {
		n.skip(what, "the configuration is not known: %v", err)
		return
	}
	seen := map[string]bool{}
	for i := range config.Drivers {
		d := &config.Drivers[i]
		if d.Inline || seen[d.FlexDriver] {
			continue
		}
		seen[d.FlexDriver] = true
		says, err := p.Cluster.DeniesInline(ctx, d.FlexDriver)
		switch {
		case err != nil:
			n.skip(what, "%v", err)
			return
		case says == "":
			n.add(inlineOpen, d.FlexDriver, "no policy denies pods an inline volume (flexVolume in their spec) of %s", d.FlexDriver)
		default:
			n.add(inlineDenied, d.FlexDriver, "pods may not have inline volumes of %s", d.FlexDriver).evidence(says)
		}
	}
}
