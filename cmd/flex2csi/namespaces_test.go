package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/flex2csi/flex2csi/internal/migrate"
)

// TestSelect: --all is all FlexVolumes, and nothing selected is an error.
func TestSelect(t *testing.T) {
	for _, tt := range []struct {
		options selectOptions
		names   []string
		want    *migrate.Selection // nil: an error
	}{
		{options: selectOptions{}},
		{options: selectOptions{selection: migrate.Selection{All: true}}, want: &migrate.Selection{All: true}},
		{options: selectOptions{selection: migrate.Selection{Selector: "a=b"}}, want: &migrate.Selection{Selector: "a=b"}},
		{options: selectOptions{namespaceOptions: namespaceOptions{namespaces: []string{"shop"}}}, want: &migrate.Selection{Namespaces: []string{"shop"}}},
		{selectOptions{selection: migrate.Selection{All: true}}, []string{"pv1"}, nil},
	} {
		err := tt.options.complete(tt.names)
		if (err == nil) != (tt.want != nil) {
			t.Errorf("%+v: %v", tt.options, err)
		} else if err == nil {
			if diff := cmp.Diff(tt.want, &tt.options.selection); diff != "" {
				t.Errorf("wanted (-), selected (+):\n%s", diff)
			}
		}
	}
}

// TestNamespaces: a volume without a claim is in no namespace.
func TestNamespaces(t *testing.T) {
	shop := namespaceOptions{namespaces: []string{"shop", "web"}}
	for claim, without := range map[string]bool{"shop/orders": false, "web/a": false, "shopping/orders": true, "": true} {
		if shop.without(claim) != without {
			t.Errorf("%q is without: %v", claim, !without)
		}
		if (&namespaceOptions{}).without(claim) {
			t.Errorf("without -n, %q is left out", claim)
		}
	}
}
