package faults

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/flex2csi/flex2csi/test/csidriver"
)

// expand makes a volume larger while a pod uses it, trying again as the
// kubelet does (OG, expandVolumeDuringMount; pkg/kubelet/volumemanager).
func (k *kubelet) expand(random *rand.Rand, p *pod, at *place) {
	size := leastSize + at.volume.size.Add(1)<<20
	for wait := 5 * time.Millisecond; !p.gone() && k.ctx.Err() == nil; wait = min(2*wait, 300*time.Millisecond) {
		err := k.call(k.ctx, random, at.volume.driver, "expandfs", k.options(at.volume, false, at.pod), "csi:"+at.volume.handle, at.dir,
			strconv.FormatInt(size, 10), strconv.FormatInt(size-1<<20, 10))
		if err != nil {
			if at.mayVanish() && !isMount(at.dir) {
				return // use sees it, and the pod gets the volume again
			}
			k.pause(p.deleted, wait)
			continue
		}
		views, err := csidriver.Inspect(k.disks())
		if got := views[at.volume.handle].Capacity; err == nil && got < size {
			k.complain("after expandfs volume %s has %d bytes, not %d", at.volume.handle, got, size)
		}
		k.report.count("expansions")
		return
	}
}

// leastSize is what volumes have at first; imageSize in numbers.
const leastSize = 8 << 20
