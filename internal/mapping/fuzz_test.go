package mapping_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// canary is a secret that no fuzzer makes up.
const canary = "s3cr3t-of-the-canary"

// FuzzMap: whatever the options are, Map does not panic, keeps the limits, and
// says nothing of a secret.
func FuzzMap(f *testing.F) {
	f.Add(`{"volumeID":"x","kubernetes.io/pvOrVolumeName":"pv","kubernetes.io/pod.uid":"1"}`)
	f.Add(`{"volumeHandle":"x","mountOptions":"a,b, ,c=d","kubernetes.io/fsType":"ext4","kubernetes.io/readwrite":"ro"}`)
	f.Add(`{"pool":"a","image":"1","s":"xy","password":"` + canary + `"}`)
	f.Add(`{"volumeID":"","n":"-9223372036854775808"}`)
	f.Add(`{"volumeID":"\u0000\ud800"}`)
	mappers := []*mapping.Mapper{
		mapper(f, nil),
		mapper(f, func(d *bridgeconfig.Driver) {
			d.PVNamePattern = "p[a-z]*"
			d.Volume.Handle = `options.pool + "/" + string(int(options.n) * 2)`
			d.Volume.Context = `options.transformMapEntry(k, v, {v: k + pod.uid})`
			d.Volume.MountFlags = `options.map(k, options[k].replace(options.?s.orValue(""), options[k]))`
			d.Volume.AccessMode = `options[pvName]`
		}),
		mapper(f, func(d *bridgeconfig.Driver) {
			d.Inline = true
			d.Volume.Handle = `string(timestamp(options.password)) + options.s.substring(1, 5)`
			d.Secrets.NodeStage = &bridgeconfig.SecretSource{FromFlexSecret: map[string]string{"a": "key"}}
			d.Secrets.NodePublish = &bridgeconfig.SecretSource{FromFlexSecret: map[string]string{"b": "other"}}
		}),
	}
	f.Fuzz(func(t *testing.T, argument string) {
		o, err := flex.ParseOptions(argument)
		if err != nil {
			return
		}
		if o.Secrets == nil {
			o.Secrets = map[string]flex.Secret{}
		}
		o.Secrets["key"] = flex.NewSecret([]byte(canary))
		for _, m := range mappers {
			v, err := m.Map(t.Context(), o, nil)
			if err != nil {
				text := fmt.Sprintf("%v %+v %#v", err, err, err)
				if strings.Contains(text, canary) || strings.ContainsFunc(err.Error(), unicode.IsControl) {
					t.Errorf("a secret or a control character in %q", text)
				}
				continue
			}
			if v.Handle == "" || len(v.Handle) > 1024 || strings.ContainsFunc(v.Handle, unicode.IsControl) {
				t.Errorf("accepted %+v", v)
			}
			if text := fmt.Sprintf("%+v %#v", v.Secrets, v.Secrets); strings.Contains(text, canary) {
				t.Errorf("a secret in %q", text)
			}
		}
	})
}
