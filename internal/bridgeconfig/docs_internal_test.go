package bridgeconfig

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocumented: the reference has each field, its default, and no other.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/bridge-configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, driver, _ := strings.Cut(string(text), "## A driver\n")
	driver, _, _ = strings.Cut(driver, "\n### ")
	_, volume, _ := strings.Cut(string(text), "## The volume\n")
	volume, _, _ = strings.Cut(volume, "\n## ")
	_, secrets, _ := strings.Cut(string(text), "## Secrets\n")
	secrets, _, _ = strings.Cut(secrets, "\n## ")

	rows := rowsOf(driver)
	names := tags(reflect.TypeFor[Driver]())
	for name := range rows {
		if !slices.Contains(names, name) {
			t.Errorf("%s is documented, and no field of a driver", name)
		}
	}
	defaults := reflect.ValueOf(DefaultDriver())
	for i, name := range names {
		row, ok := rows[name]
		if !ok {
			t.Errorf("%s is not documented", name)
			continue
		}
		switch field := defaults.Field(i); field.Kind() {
		case reflect.Bool, reflect.String:
			want := fmt.Sprint(field)
			if got := strings.Trim(row, "`"); want != "" && got != want {
				t.Errorf("the default of %s is documented as %q and is %q", name, got, want)
			}
		}
	}
	for where, in := range map[string]struct {
		names []string
		text  string
	}{
		"volume":           {tags(reflect.TypeFor[VolumeMapping]()), volume},
		"secrets":          {tags(reflect.TypeFor[Secrets]()), secrets},
		"source of secret": {tags(reflect.TypeFor[SecretSource]()), secrets},
	} {
		for _, name := range in.names {
			if !strings.Contains(in.text, "`"+name+"`") {
				t.Errorf("%s: %s is not documented in its section", where, name)
			}
		}
	}
}

// rowsOf returns the fields of a table and their defaults.
func rowsOf(section string) map[string]string {
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-zA-Z]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(section, -1) {
		rows[row[1]] = row[2]
	}
	return rows
}

func tags(typ reflect.Type) (names []string) {
	for field := range typ.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if name != "-" {
			names = append(names, name)
		}
	}
	return names
}
