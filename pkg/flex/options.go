package flex

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/flex2csi/flex2csi/internal/strict"
)

// The keys that the kubelet adds to the volume's own options
// (pkg/volume/flexvolume/driver-call.go:50-61, Kubernetes v1.37.1).
const (
	OptionFSType             = "kubernetes.io/fsType"
	OptionReadWrite          = "kubernetes.io/readwrite"
	OptionPVOrVolumeName     = "kubernetes.io/pvOrVolumeName"
	OptionPodName            = "kubernetes.io/pod.name"
	OptionPodNamespace       = "kubernetes.io/pod.namespace"
	OptionPodUID             = "kubernetes.io/pod.uid"
	OptionServiceAccountName = "kubernetes.io/serviceAccount.name"
	// OptionFSGroup is the key since Kubernetes 1.15.
	OptionFSGroup = "kubernetes.io/mounterArgs.FsGroup"
	// OptionLegacyFSGroup is the key before Kubernetes 1.15.
	OptionLegacyFSGroup = "kubernetes.io/fsGroup"
	// OptionSecretPrefix and the key in the Secret; the value is base64.
	OptionSecretPrefix = "kubernetes.io/secret/"

	// optionPrefix is Kubernetes' own: the API server refuses it in a volume's
	// options (pkg/apis/core/validation/validation.go:1593-1624).
	optionPrefix = "kubernetes.io/"
)

// Options is the JSON argument of a callout.
//
// After a restart of the kubelet getvolumename can come without any of the
// volume's own options, because the kubelet rebuilds its picture from
// directories (pkg/volume/flexvolume/plugin.go:268-280): User and FSType are
// empty then.
type Options struct {
	FSType     string // kubernetes.io/fsType; may be empty
	ReadOnly   bool   // kubernetes.io/readwrite is "ro"; without it false
	VolumeName string // kubernetes.io/pvOrVolumeName

	// The pod and its service account: mount only.
	PodName, PodNamespace, PodUID, ServiceAccountName string

	// FSGroup is the pod's, nil if it has none: mount only. It is read from
	// both keys; the newer one wins.
	FSGroup *int64

	// Secrets are the values of the volume's Secret by their keys, decoded:
	// mount only. Nil if there are none.
	Secrets map[string]Secret

	// User holds the volume's own options as they are in the
	// PersistentVolume. Nil if there are none.
	User map[string]string

	// Extra holds keys under kubernetes.io/ that this package does not know,
	// so that a later Kubernetes may add some. A driver should ignore them.
	Extra map[string]string
}

// ParseOptions reads the JSON argument: one object in which all values are
// strings. A key that comes twice, a value that is no string, and a value
// under kubernetes.io/ that the kubelet would not write are errors. They name
// the key at fault, never a value.
func ParseOptions(argument string) (Options, error) {
	var o Options
	pairs, err := parsePairs(argument)
	if err != nil {
		return Options{}, err
	}
	for _, p := range pairs {
		if err := o.set(p.key, p.value); err != nil {
			return Options{}, Errorf(CodeInvalidArgument, "the option %s %w", quoteKey(p.key), err)
		}
	}
	if o.FSGroup, err = fsGroupOf(pairs); err != nil {
		return Options{}, err
	}
	return o, nil
}

type pair struct{ key, value string }

// parsePairs reads a flat JSON object member by member rather than into a map,
// so that the key at fault can be named and a second one of the same name is
// noticed.
func parsePairs(argument string) ([]pair, error) {
	if !utf8.ValidString(argument) {
		return nil, Errorf(CodeInvalidArgument, "the JSON options are not valid UTF-8")
	}
	if err := checkSyntax(argument); err != nil {
		return nil, err
	}
	argument = strings.TrimSpace(argument)
	if kind := strict.KindOf(argument); kind != strict.Object {
		return nil, Errorf(CodeInvalidArgument, "the JSON options are %s: want one JSON object", kind)
	}
	members := strict.Members(argument)
	pairs := make([]pair, 0, len(members))
	seen := make(map[string]bool, len(members))
	for _, m := range members {
		if kind := strict.KindOf(m.Value); kind != strict.String {
			return nil, Errorf(CodeInvalidArgument, "the option %s is %s: want a string in double quotes", quoteKey(m.Key), kind)
		}
		if seen[m.Key] {
			return nil, Errorf(CodeInvalidArgument, "the option %s is given twice", quoteKey(m.Key))
		}
		seen[m.Key] = true
		pairs = append(pairs, pair{m.Key, strict.Unquote(m.Value)})
	}
	return pairs, nil
}

// checkSyntax tells where the JSON is broken, but not by its text.
func checkSyntax(argument string) error {
	if strings.TrimSpace(argument) == "" {
		return Errorf(CodeInvalidArgument, "the JSON options are empty: want one JSON object")
	}
	err := strict.CheckJSON([]byte(argument))
	switch {
	case err == nil:
		return nil
	case !looksLikeJSON(argument):
		return Errorf(CodeInvalidArgument, "the JSON options do not begin with {: are the arguments in the right order?")
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return Errorf(CodeInvalidArgument, "the JSON options are not valid JSON: syntax error at byte %d of %d", syntax.Offset, len(argument))
	}
	return Errorf(CodeInvalidArgument, "the JSON options are not valid JSON")
}

// set takes one key. Its errors go on with the words "the option <key>".
func (o *Options) set(key, value string) error {
	switch key {
	case OptionFSType:
		o.FSType = value
		return checkText(value)
	case OptionReadWrite:
		return o.setReadWrite(value)
	case OptionPVOrVolumeName:
		return setName(&o.VolumeName, value)
	case OptionPodName:
		return setName(&o.PodName, value)
	case OptionPodNamespace:
		return setName(&o.PodNamespace, value)
	case OptionPodUID:
		return setName(&o.PodUID, value)
	case OptionServiceAccountName:
		return setName(&o.ServiceAccountName, value)
	case OptionFSGroup, OptionLegacyFSGroup:
		return nil // two keys, one field: fsGroupOf
	}
	if name, ok := strings.CutPrefix(key, OptionSecretPrefix); ok {
		return o.setSecret(name, value)
	}
	if strings.HasPrefix(key, optionPrefix) {
		put(&o.Extra, key, value)
		return nil
	}
	put(&o.User, key, value)
	return nil
}

func (o *Options) setReadWrite(value string) error {
	o.ReadOnly = value == "ro"
	if value != "ro" && value != "rw" {
		return Errorf(CodeInvalidArgument, `must be "ro" or "rw"`)
	}
	return nil
}

// setName takes a name that may be absent, as by hand, or empty, as the
// service account's.
func setName(field *string, value string) error {
	*field = value
	if value == "" {
		return nil
	}
	return checkName(value)
}

// setSecret decodes what FV/util.go:52 encoded.
func (o *Options) setSecret(name, value string) error {
	decoded, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return Errorf(CodeInvalidArgument, "is not valid base64: encode the value, for example with base64 -w0")
	}
	put(&o.Secrets, name, NewSecret(decoded))
	return nil
}

func fsGroupOf(pairs []pair) (*int64, error) {
	var found *pair
	for i, p := range pairs {
		if p.key == OptionFSGroup || p.key == OptionLegacyFSGroup && found == nil {
			found = &pairs[i]
		}
	}
	if found == nil {
		return nil, nil
	}
	// 4294967295 is (gid_t)-1, which chown(2) takes for "leave as it is".
	gid, err := strconv.ParseUint(found.value, 10, 32)
	if err != nil || gid == 1<<32-1 {
		return nil, Errorf(CodeInvalidArgument, "the option %s is not the number of a group", quoteKey(found.key))
	}
	group := int64(gid)
	return &group, nil
}

// MarshalArgument turns o back into the JSON argument as the kubelet would
// write it: sorted keys, all values strings. The secrets are in it, in base64,
// readable: never log the result.
func (o Options) MarshalArgument() (string, error) {
	m := map[string]string{OptionFSType: o.FSType, OptionReadWrite: "rw", OptionPVOrVolumeName: o.VolumeName}
	if o.ReadOnly {
		m[OptionReadWrite] = "ro"
	}
	optional := []pair{
		{OptionPodName, o.PodName},
		{OptionPodNamespace, o.PodNamespace},
		{OptionPodUID, o.PodUID},
		{OptionServiceAccountName, o.ServiceAccountName},
	}
	for _, p := range optional {
		if p.value != "" {
			m[p.key] = p.value
		}
	}
	if o.FSGroup != nil {
		m[OptionFSGroup] = strconv.FormatInt(*o.FSGroup, 10)
	}
	for name, secret := range o.Secrets {
		m[OptionSecretPrefix+name] = base64.StdEncoding.EncodeToString(secret.Reveal())
	}
	maps.Copy(m, o.Extra)
	maps.Copy(m, o.User)
	b, err := json.Marshal(m)
	if err != nil {
		return "", Errorf(CodeInternal, "cannot encode the options: %w", err)
	}
	return string(b), nil
}

func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

// quoteKey quotes a key for a message, and shortens one that is absurd.
func quoteKey(key string) string {
	const most = 80
	if len(key) > most {
		return strconv.Quote(strings.ToValidUTF8(key[:most], "")) + "…"
	}
	return strconv.Quote(key)
}
