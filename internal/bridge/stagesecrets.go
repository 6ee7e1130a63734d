package bridge

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A digest stands for secrets: it tells whether they have changed, and nothing else.
// It is made with a key of the process, and only ever in memory.
type digest [sha256.Size]byte

// A digester makes digests.
type digester struct {
	once sync.Once
	key  [sha256.Size]byte
}

func (d *digester) of(secrets map[string]flex.Secret) digest {
	d.once.Do(func() { _, _ = rand.Read(d.key[:]) }) // which never fails
	h := hmac.New(sha256.New, d.key[:])
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		value := secrets[name].Reveal()
		fmt.Fprintf(h, "%d:%s%d:", len(name), name, len(value))
		_, _ = h.Write(value)
	}
	return digest(h.Sum(nil))
}

// unstageOther undoes a NodeStageVolume that ended uncertain with other secrets than
// those of now: it may have been done, and some drivers say OK to the next one and
// keep the mount with the wrong ones. What pods hold stays, and so does what the
// kubelet's CSI plugin may have.
func (b *Bridge) unstageOther(s *setup) error {
	v, r := s.v, s.v.record
	now := b.digests.of(s.want.Secrets.NodeStage)
	before := v.stagedWith
	inDoubt := r.Stage == volstate.Doing || r.Stage == volstate.Undoing
	if inDoubt && before != (digest{}) && before != now && len(publishedPods(r)) == 0 {
		over, err := b.takenOver(v)
		if err == nil && !over {
			v.log.Info("the secrets of NodeStageVolume have changed since a try of which it is not known what became: it is undone first")
			err = b.unstage(s.d, v)
		}
		if err != nil {
			return err
		}
	}
	v.stagedWith = now
	return nil
}
