package bridgeconfig

import (
	"maps"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/strict"
)

func (v *validator) source(at string, s *SecretSource) {
	switch {
	case s == nil:
		return
	case s.kinds() == 0:
		v.Fault(at, "want fromFlexSecret, file or secretRef")
	case s.kinds() > 1:
		v.Fault(at, "has several of fromFlexSecret, file and secretRef: want one of them")
	case s.FromFlexSecret != nil && len(s.FromFlexSecret) == 0:
		v.Fault(at+".fromFlexSecret", "empty (want a key of the CSI driver, and the key in the volume's Secret)")
	}
	for _, key := range slices.Sorted(maps.Keys(s.FromFlexSecret)) {
		v.secretKey(strict.Join(at+".fromFlexSecret", key), key)
		v.secretKey(strict.Join(at+".fromFlexSecret", key), s.FromFlexSecret[key])
	}
	for i, key := range s.Optional {
		if _, ok := s.FromFlexSecret[key]; !ok {
			v.Fault(strict.Index(at+".optional", i), "%q is no key of the CSI driver in fromFlexSecret", strict.Clip(key))
		}
	}
	if s.SecretRef != nil {
		v.objectName(at+".secretRef.name", s.SecretRef.Name)
		v.objectName(at+".secretRef.namespace", s.SecretRef.Namespace)
	}
	v.AbsPath(at+".file", s.File)
	if s.Key != "" {
		v.secretKey(at+".key", s.Key)
		if s.File == "" {
			v.Fault(at+".key", "is for a file (fromFlexSecret names its keys itself, and of a secretRef all keys are given)")
		}
	}
}

// kinds counts how many places the source names.
func (s *SecretSource) kinds() (n int) {
	for _, is := range []bool{s.FromFlexSecret != nil, s.File != "", s.SecretRef != nil} {
		if is {
			n++
		}
	}
	return n
}

// objectName as Kubernetes names most things (a DNS subdomain).
func (v *validator) objectName(at, name string) {
	const most = 253
	switch {
	case name == "":
		v.Fault(at, "missing")
	case len(name) > most || !madeOf(name, "-.") || strings.ToLower(name) != name || strings.Trim(name, "-.") != name:
		v.Fault(at, "%q is no name in Kubernetes: small letters, digits, '-' and '.' are allowed, a letter or digit at both ends", strict.Clip(name))
	}
}

func (s *SecretSource) fromFlex() bool { return s != nil && len(s.FromFlexSecret) > 0 }

// secretKey as in the CSI specification, "Secrets Requirements", and in
// Kubernetes' Secrets.
func (v *validator) secretKey(at, key string) {
	if key == "" || len(key) > maxSecretKey || !madeOf(key, "-_.") {
		v.Fault(at, "%q is no key of a secret: letters, digits, '-', '_' and '.' are allowed", strict.Clip(key))
	}
}

// All returns the sources that there are, by the names of their stages.
func (s *Secrets) All() map[string]*SecretSource {
	all := map[string]*SecretSource{}
	for name, source := range s.stages() {
		if *source != nil {
			all[name] = *source
		}
	}
	return all
}

// files returns the files that secrets are read from.
func (s *Secrets) files() []string {
	var files []string
	for _, source := range s.All() {
		if source.File != "" {
			files = append(files, source.File)
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}
