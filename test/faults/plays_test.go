package faults

import (
	"strings"
)

// The plays; none is the campaign.
const (
	// "kill NAME" kills the daemon in the middle of each callout of the life of
	// that name; this one kills flexdriver while there is no daemon.
	playKill = "kill "
	alone    = "alone"
	// playHang has a volume hang, and then a driver.
	playHang = "hang"
	// playUpgrade replaces the programs under load.
	playUpgrade = "upgrade"
)

func (w *world) play() {
	name, kill := strings.CutPrefix(w.Play, playKill)
	switch {
	case kill && name == alone:
		w.killAlone()
	case kill:
		w.kill(name)
	case w.Play == playHang:
		w.hang()
	case w.Play == playUpgrade:
		w.upgrade()
	default:
		w.run()
	}
}
