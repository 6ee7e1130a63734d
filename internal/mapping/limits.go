package mapping

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// sizeLimits are wider than those of the CSI specification v1.13.0, "Size Limits" (128
// bytes, 4 KiB): drivers have longer handles, such as Azure's resource IDs, and the kubelet
// accepts them.
const (
	textLimit   = 1 << 10
	objectLimit = 64 << 10
)

// check returns what is wrong with a volume for a driver.
func check(v *csivol.Volume) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for name, text := range map[string]string{"handle": v.Handle, "fsType": v.FSType} {
		if len(text) > textLimit {
			add("the %s has %d bytes and may have %d", name, len(text), textLimit)
		}
		if !isText(text) {
			add("the %s has a control character in it", name)
		}
	}
	size := 0
	for _, f := range v.MountFlags {
		size += len(f)
		if f == "" || !isText(f) {
			add("a mount flag is empty or has a control character in it")
			break
		}
	}
	if size > objectLimit {
		add("the mount flags have %d bytes together and may have %d", size, objectLimit)
	}
	size = 0
	for key, value := range v.Context {
		size += len(key) + len(value)
		if reserved(key) {
			add("the context has the key %q, which only flex2csi may set (see podInfo)", key)
		}
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			add("the context has a value that is not UTF-8 text")
		}
	}
	if size > objectLimit {
		add("the context has %d bytes and may have %d", size, objectLimit)
	}
	return problems
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) }

// reserved reports whether only the kubelet may set key, with information about the pod
// (pkg/volume/csi/csi_util.go, getPodInfoAttrs, and csi_mounter.go,
// podServiceAccountTokenAttrs, Kubernetes v1.37.1). Other keys of csi.storage.k8s.io come
// from provisioners.
func reserved(key string) bool {
	rest, ok := strings.CutPrefix(key, "csi.storage.k8s.io/")
	return ok && (strings.HasPrefix(rest, "pod.") || strings.HasPrefix(rest, "serviceAccount.") || rest == "ephemeral")
}

// checkSecrets returns which secrets of a stage cannot be sent. It names only keys.
func checkSecrets(field string, secrets map[string]flex.Secret) error {
	size := 0
	for key, secret := range secrets {
		value := secret.Reveal()
		size += len(key) + len(value)
		if !utf8.Valid(value) {
			return flex.Errorf(flex.CodeInvalidArgument, "%s: the value of %q is not UTF-8 text, which CSI wants: encode it as the driver expects it, for example in base64", field, key)
		}
	}
	if size > objectLimit {
		return flex.Errorf(flex.CodeInvalidArgument, "%s has %d bytes and may have %d", field, size, objectLimit)
	}
	return nil
}
