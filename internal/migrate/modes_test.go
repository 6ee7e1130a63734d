package migrate_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
)

// TestModes: the replacement of a PersistentVolume with ReadWriteOnce and
// ReadOnlyMany had both, and the external-attacher never attached it.
func TestModes(t *testing.T) {
	for _, test := range []struct {
		mapping      string
		before, want []string
	}{
		{``, []string{"ReadWriteOnce", "ReadOnlyMany"}, []string{"ReadWriteOnce"}},
		{``, []string{"ReadOnlyMany", "ReadWriteOnce"}, []string{"ReadOnlyMany"}},
		{`"\"ReadWriteOnce\""`, []string{"ReadOnlyMany", "ReadWriteOnce"}, []string{"ReadWriteOnce"}},
		{`"\"ReadWriteOnce\""`, []string{"ReadOnlyMany"}, []string{"ReadWriteOnce"}},
		{`"\"\""`, []string{"ReadOnlyMany", "ReadWriteOnce"}, []string{"ReadWriteOnce"}},
		{`"\"ReadWriteMany\""`, []string{"ReadWriteOnce", "ReadOnlyMany"}, []string{"ReadWriteMany", "ReadWriteOnce", "ReadOnlyMany"}},
		{``, []string{"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"}, []string{"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"}},
		{``, []string{"ReadWriteOnce"}, []string{"ReadWriteOnce"}},
	} {
		volume := `{"handle": "options.volumeID"`
		if test.mapping != "" {
			volume += `, "accessMode": ` + test.mapping
		}
		config, err := bridgeconfig.Loader{}.Decode([]byte(`{"apiVersion": "flex2csi.io/v1alpha1", "kind": "BridgeConfiguration", "drivers": [{"flexDriver": "example.com/disk", "csiDriver": "disk.csi.example.com", "volume": `+volume+`}}]}`), mapping.Check)
		if err != nil {
			t.Fatal(err)
		}
		modes, err := json.Marshal(test.before)
		if err != nil {
			t.Fatal(err)
		}
		replacement, v, err := migrate.Render(t.Context(), config, []byte(strings.Replace(flexJSON, `["ReadWriteOnce"]`, string(modes), 1)))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Spec struct{ AccessModes []string }
		}
		if err := json.Unmarshal(replacement, &got); err != nil || !slices.Equal(got.Spec.AccessModes, test.want) {
			t.Errorf("mapping %s: %v becomes %v, want %v (%v)", test.mapping, test.before, got.Spec.AccessModes, test.want, err)
		}
		noted := slices.ContainsFunc(v.Checks, func(c migrate.Check) bool { return c.Name == "access-mode" && c.Status == migrate.Note })
		if narrowed := len(test.want) == 1 && !slices.Equal(test.want, test.before); noted != narrowed {
			t.Errorf("mapping %s: %v, %v: noted %t", test.mapping, test.before, test.want, noted)
		}
	}
}
