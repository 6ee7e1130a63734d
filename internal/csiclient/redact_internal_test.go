package csiclient

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// TestTokensOneByOne: the value has several in it, as JSON, and a driver says the
// one that it does not like.
func TestTokensOneByOne(t *testing.T) {
	const name = "csi.storage.k8s.io/serviceAccount.tokens"
	all := map[string]string{name: `{"vault":{"token":"eyJcanary.one","expirationTimestamp":"2026-11-22T00:00:00Z"},"":{"token":"eyJcanary.two","expirationTimestamp":"2026-11-22T00:00:00Z"}}`}
	for where, m := range map[string]*csi.NodePublishVolumeRequest{
		"volume context": {VolumeContext: all},
		"secrets":        {Secrets: all},
	} {
		for _, token := range []string{"eyJcanary.one", "eyJcanary.two"} {
			if text := redactor(m).Redact("vault does not take " + token + " at all"); strings.Contains(text, "canary") {
				t.Errorf("%s: %s", where, text)
			}
		}
	}
}
