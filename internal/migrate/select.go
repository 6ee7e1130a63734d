package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// A Selection says which volumes are meant. Names and Claims name some; the
// others narrow that, or, where nothing is named, all FlexVolumes.
type Selection struct {
	Names         []string
	Claims        []string // namespace/name
	Namespaces    []string // of the claims
	Selector      string   // of labels of the PersistentVolume
	ClaimSelector string   // of labels of the claim
	Drivers       []string // vendor/name
	All           bool
}

// Empty reports that nothing is selected, which is not everything.
func (selection *Selection) Empty() bool {
	return !selection.All && len(selection.Names)+len(selection.Claims)+len(selection.Namespaces)+len(selection.Drivers) == 0 && selection.Selector == "" && selection.ClaimSelector == ""
}

// find returns the volumes that are selected, in the order of their names. A
// name that is none is an error; what was named and is no FlexVolume is told so.
func (selection *Selection) find(ctx context.Context, w *world, drivers *drivers) ([]*volume, error) {
	claimNames, err := selection.claims(ctx, w)
	if err != nil {
		return nil, err
	}
	var found []*volume
	h, missing := newHandles(), slices.Concat(selection.Names, selection.Claims)
	err = w.eachVolume(ctx, selection.Selector, func(o *volume) {
		h.add(ctx, drivers, o)
		claim := o.claim()
		namespace, _, _ := strings.Cut(claim, "/")
		named := slices.Contains(selection.Names, o.Name) || slices.Contains(selection.Claims, claim)
		missing = slices.DeleteFunc(missing, func(n string) bool { return n == o.Name || n == claim })
		switch driver := o.flexDriver(); {
		case len(selection.Names)+len(selection.Claims) > 0 && !named:
		case driver == "" && !named:
		case len(selection.Drivers) > 0 && !slices.Contains(selection.Drivers, driver):
		case len(selection.Namespaces) > 0 && !slices.Contains(selection.Namespaces, namespace):
		case claimNames != nil && !claimNames[claim]:
		default:
			found = append(found, o)
		}
	})
	if err != nil {
		return nil, err
	}
	if selection.Selector == "" { // these were all
		w.read[handlesKey] = h
	}
	if len(missing) > 0 {
		for i, name := range missing {
			if strings.Contains(name, "/") {
				missing[i] = "of claim " + name
			}
		}
		return nil, fmt.Errorf("there is no PersistentVolume %s: flex2csi migrate plan --all shows the FlexVolumes, and their claims", strings.Join(missing, ", and none "))
	}
	slices.SortFunc(found, func(a, b *volume) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// claims returns the claims that ClaimSelector selects; nil if there is none.
func (selection *Selection) claims(ctx context.Context, w *world) (map[string]bool, error) {
	if selection.ClaimSelector == "" {
		return nil, nil
	}
	all, err := listObjects(ctx, w, objects.Claims(), "", metav1.ListOptions{LabelSelector: selection.ClaimSelector})
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, o := range all {
		names[full(o)] = true
	}
	return names, nil
}
