package bridge

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"

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

func (x *execution) noteStageSecrets() {
	x.v.stagedWith = x.b.digests.of(x.secrets.NodeStage)
}

// otherStageSecrets reports whether the last NodeStageVolume had other secrets: it may
// have been done, and some drivers say OK to the next one and keep the mount with the
// wrong ones.
func (x *execution) otherStageSecrets() bool {
	return x.v.stagedWith != (digest{}) && x.v.stagedWith != x.b.digests.of(x.secrets.NodeStage)
}
