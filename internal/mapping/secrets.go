package mapping

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/internal/strict"
	"github.com/flex2csi/flex2csi/internal/yamltext"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// A stage has the sources and the destination of the secrets of one kind of RPC.
type stage struct {
	field  string // as in the file: secrets.nodeStage
	source bridgeconfig.SecretSource
	dst    func(*csivol.Secrets) *map[string]flex.Secret
}

func stages(s *bridgeconfig.Secrets) (stages []stage) {
	add := func(name string, source *bridgeconfig.SecretSource, dst func(*csivol.Secrets) *map[string]flex.Secret) {
		if source != nil {
			stages = append(stages, stage{"secrets." + name, *source, dst})
		}
	}
	type secrets = map[string]flex.Secret
	add("controllerPublish", s.ControllerPublish, func(s *csivol.Secrets) *secrets { return &s.ControllerPublish })
	add("nodeStage", s.NodeStage, func(s *csivol.Secrets) *secrets { return &s.NodeStage })
	add("nodePublish", s.NodePublish, func(s *csivol.Secrets) *secrets { return &s.NodePublish })
	add("nodeExpand", s.NodeExpand, func(s *csivol.Secrets) *secrets { return &s.NodeExpand })
	add("controllerExpand", s.ControllerExpand, func(s *csivol.Secrets) *secrets { return &s.ControllerExpand })
	return stages
}

// SecretFiles returns the files with secrets.
func (m *Mapper) SecretFiles() (paths []string) {
	for _, s := range m.stages {
		if s.source.File != "" {
			paths = append(paths, s.source.File)
		}
	}
	return paths
}

// A fileReader reads the secrets in a file: an object, or the value of a key.
type fileReader func(path, key string) (map[string]flex.Secret, error)

// A secretReader reads a Secret. Its errors have the name.
type secretReader func(ctx context.Context, ref csivol.SecretRef) (map[string]flex.Secret, error)

// WithSecrets returns a Mapper that can read Secrets.
func (m *Mapper) WithSecrets(read secretReader) *Mapper {
	other := *m
	other.readSecret = read
	return &other
}

// WithoutSecrets returns a Mapper that reads no secrets and reports none as missing, for
// callers without a CSI driver.
func (m *Mapper) WithoutSecrets() *Mapper {
	other := *m
	other.stages = nil
	return &other
}

// WithFiles returns a Mapper with another reader of files.
func (m *Mapper) WithFiles(read fileReader) *Mapper {
	other := *m
	other.readFile = read
	return &other
}

// AttachSecrets returns the secrets of controllerPublish unless they come with a call.
// They are available in tear-down, too, which has no options.
func (m *Mapper) AttachSecrets(ctx context.Context) (map[string]flex.Secret, error) {
	all, err := m.gather(ctx, func(s stage) bool { return s.field == "secrets.controllerPublish" && !s.fromFlex() }, nil)
	return all.ControllerPublish, err
}

// ExpandSecrets adds the secrets of expansions. None comes with a call.
func (m *Mapper) ExpandSecrets(ctx context.Context, to *csivol.Secrets) error {
	all, err := m.gather(ctx, func(s stage) bool { return s.expands() }, nil)
	if all.NodeExpand != nil {
		to.NodeExpand = all.NodeExpand
	}
	if all.ControllerExpand != nil {
		to.ControllerExpand = all.ControllerExpand
	}
	return err
}

// StaticSecrets returns the secrets of all stages if none comes with a call.
func (m *Mapper) StaticSecrets(ctx context.Context) (csivol.Secrets, error) {
	for _, s := range m.stages {
		if s.fromFlex() && s.onNode() {
			return csivol.Secrets{}, flex.Errorf(flex.CodeFailedPrecondition, "%s come from the volume's Secret, which the kubelet passes to mount only", s.field)
		}
	}
	return m.gather(ctx, func(s stage) bool { return s.source.File != "" || s.fromCluster() && s.onNode() }, nil)
}

// secrets gathers the secrets of each stage. Callouts other than mount bring no Flex
// secret: stages that need one stay without. Secrets of the API server are read here
// only for what a pod needs; the others are read when they are needed.
func (m *Mapper) secrets(ctx context.Context, o flex.Options) (csivol.Secrets, error) {
	isMount := o.PodUID != "" || len(o.Secrets) > 0
	return m.gather(ctx, func(s stage) bool {
		if s.fromCluster() {
			return s.field == "secrets.nodeStage" || s.field == "secrets.nodePublish" && isMount
		}
		return isMount || s.source.File != ""
	}, o.Secrets)
}

func (s stage) fromFlex() bool    { return s.source.FromFlexSecret != nil }
func (s stage) fromCluster() bool { return s.source.SecretRef != nil }
func (s stage) onNode() bool {
	return s.field == "secrets.nodeStage" || s.field == "secrets.nodePublish"
}

func (s stage) expands() bool {
	return s.field == "secrets.nodeExpand" || s.field == "secrets.controllerExpand"
}

func (m *Mapper) gather(ctx context.Context, wanted func(stage) bool, fromFlex map[string]flex.Secret) (csivol.Secrets, error) {
	var all csivol.Secrets
	for _, s := range m.stages {
		if !wanted(s) {
			continue
		}
		secrets, err := m.read(ctx, s, fromFlex)
		if err == nil {
			err = checkSecrets(s.field, secrets)
		}
		if err != nil {
			return csivol.Secrets{}, err
		}
		*s.dst(&all) = secrets
	}
	return all, nil
}

func (m *Mapper) read(ctx context.Context, s stage, fromFlex map[string]flex.Secret) (map[string]flex.Secret, error) {
	if ref := s.source.SecretRef; ref != nil {
		return m.ask(ctx, s, csivol.SecretRef{Namespace: ref.Namespace, Name: ref.Name})
	}
	if s.source.File != "" {
		secrets, err := m.readFile(s.source.File, s.source.Key)
		if err != nil {
			return nil, flex.Errorf(flex.CodeFailedPrecondition, "%s: file %s on this node: %w", s.field, s.source.File, err)
		}
		return secrets, nil
	}
	secrets := make(map[string]flex.Secret, len(s.source.FromFlexSecret))
	for _, key := range slices.Sorted(maps.Keys(s.source.FromFlexSecret)) {
		flexKey := s.source.FromFlexSecret[key]
		secret, ok := fromFlex[flexKey]
		if !ok && slices.Contains(s.source.Optional, key) {
			continue
		}
		if !ok {
			return nil, flex.Errorf(flex.CodeInvalidArgument, "%s: the volume's Secret has no key %q%s", s.field, flexKey, noSecret(fromFlex))
		}
		secrets[key] = secret
	}
	return secrets, nil
}

func (m *Mapper) ask(ctx context.Context, s stage, ref csivol.SecretRef) (map[string]flex.Secret, error) {
	if m.readSecret == nil {
		return nil, flex.Errorf(flex.CodeFailedPrecondition, "%s: Secret %s/%s: this daemon has no access to the API server; give it --in-cluster or --kubeconfig", s.field, ref.Namespace, ref.Name)
	}
	secrets, err := m.readSecret(ctx, ref)
	if err != nil {
		return nil, flex.Errorf(flex.CodeOf(err), "%s: %w", s.field, err)
	}
	return secrets, nil
}

func noSecret(secrets map[string]flex.Secret) string {
	if len(secrets) == 0 {
		return "; it has no Secret: set secretRef to a Secret with the name of the FlexVolume driver as its type"
	}
	return fmt.Sprintf(", only %q", slices.Sorted(maps.Keys(secrets)))
}

const maxSecretFile = 256 << 10

// readSecrets reads a file. Its errors have nothing of the content.
func readSecrets(path, key string) (map[string]flex.Secret, error) {
	data, err := hostfile.ReadTrusted(path, hostfile.MayNothing, maxSecretFile)
	if err != nil {
		return nil, err
	}
	if key != "" {
		// Editors and echo put a line break at the end, and no password has one.
		text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
		return map[string]flex.Secret{key: flex.NewSecret([]byte(text))}, nil
	}
	root, err := yamltext.Parse(data)
	if err != nil {
		return nil, notYAML(err)
	}
	if yamltext.KindOf(root) != strict.Object {
		return nil, errors.New("want a YAML or JSON object, keys and values (for a file that is one value, set key)")
	}
	var d yamltext.Decoder
	var texts map[string]string
	d.Decode(root, &texts)
	if invalid, ok := errors.AsType[*strict.InvalidError](d.Err()); ok {
		return nil, fmt.Errorf("line %d: want a key that comes once and a text as its value (put quotes around it)", invalid.Faults[0].Line)
	}
	secrets := make(map[string]flex.Secret, len(texts))
	for key, text := range texts {
		secrets[key] = flex.NewSecret([]byte(text))
	}
	return secrets, nil
}

func notYAML(err error) error {
	if e, ok := errors.AsType[*strict.InvalidError](err); ok && e.Faults[0].Line > 0 {
		return fmt.Errorf("line %d: neither YAML nor JSON", e.Faults[0].Line)
	}
	return errors.New("empty, or neither YAML nor JSON")
}
