package mapping

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// limits are sizes in bytes.
type limits struct {
	text, object int
	relaxed      bool
}

// limitsOf returns the limits of the CSI specification v1.13.0, "Size Limits", or wider
// ones.
func limitsOf(s bridgeconfig.SizeLimits) limits {
	if s == bridgeconfig.SizeLimitsRelaxed {
		return limits{text: 1 << 10, object: 64 << 10, relaxed: true}
	}
	return limits{text: 128, object: 4 << 10}
}

// advice returns what to do about a value that is too long.
func (l limits) advice() string {
	if l.relaxed {
		return ""
	}
	return " (the limit of the CSI specification; if the driver takes more, set sizeLimits: Relaxed)"
}

// check returns what is wrong with a volume for a driver.
func (l limits) check(v *csivol.Volume) (problems []string) {
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for name, text := range map[string]string{"handle": v.Handle, "fsType": v.FSType} {
		if len(text) > l.text {
			add("the %s has %d bytes and may have %d%s", name, len(text), l.text, l.advice())
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
	if size > l.object {
		add("the mount flags have %d bytes together and may have %d%s", size, l.object, l.advice())
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
	if size > l.object {
		add("the context has %d bytes and may have %d%s", size, l.object, l.advice())
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
func (l limits) checkSecrets(field string, secrets map[string]flex.Secret) error {
	size := 0
	for key, secret := range secrets {
		value := secret.Reveal()
		size += len(key) + len(value)
		if !utf8.Valid(value) {
			return flex.Errorf(flex.CodeInvalidArgument, "%s: the value of %q is not UTF-8 text, which CSI wants: encode it as the driver expects it, for example in base64", field, key)
		}
	}
	if size > l.object {
		return flex.Errorf(flex.CodeInvalidArgument, "%s has %d bytes and may have %d%s", field, size, l.object, l.advice())
	}
	return nil
}
