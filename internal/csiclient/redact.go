package csiclient

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/flex2csi/flex2csi/internal/guard"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// redactor returns a redactor for the secrets of a request: those that the specification
// marks, and values with a secret name in contexts and mount flags. Drivers echo them in
// errors.
func redactor(m Message) *flex.Redactor {
	c := collector{Secrets: map[string]flex.Secret{}, User: map[string]string{}}
	c.message(m.ProtoReflect())
	return flex.NewRedactor(flex.Options(c))
}

// collector puts the parts of a request into the form of a Redactor.
type collector flex.Options

func (c collector) message(m protoreflect.Message) {
	for f, v := range m.Range {
		switch {
		case f.IsMap():
			c.textMap(f, v.Map())
		case f.IsList() && f.Name() == "mount_flags":
			c.flags(v.List())
		case !f.IsList() && f.Kind() == protoreflect.MessageKind:
			c.message(v.Message())
		}
	}
}

func (c collector) textMap(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	secret := isSecret(f)
	for k, v := range m.Range {
		name := string(f.Name()) + "." + k.String()
		if secret {
			c.Secrets[name] = flex.NewSecret([]byte(v.String()))
			c.tokens(name, v.String())
		} else {
			c.User[name] = v.String()
		}
	}
}

// tokens adds the tokens in csi.storage.k8s.io/serviceAccount.tokens by their audiences:
// a driver may echo the one that it refuses.
func (c collector) tokens(name, value string) {
	if !strings.HasSuffix(name, "/serviceAccount.tokens") {
		return
	}
	var all map[string]struct {
		Token string `json:"token"`
	}
	if json.Unmarshal([]byte(value), &all) != nil {
		return // not our format
	}
	for audience, t := range all {
		c.Secrets[name+"."+audience] = flex.NewSecret([]byte(t.Token))
	}
}

func (c collector) flags(l protoreflect.List) {
	for i := range l.Len() {
		flag := l.Get(i).String()
		if name, value, ok := strings.Cut(flag, "="); ok && guard.SensitiveKey(name) {
			c.Secrets[fmt.Sprintf("mount_flags[%d]", i)] = flex.NewSecret([]byte(value))
		}
	}
}

// isSecret reports whether the specification marks a field as secret.
func isSecret(f protoreflect.FieldDescriptor) bool {
	secret, _ := proto.GetExtension(f.Options(), csi.E_CsiSecret).(bool)
	return secret
}
