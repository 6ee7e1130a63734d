package assess

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// Cluster reads a cluster. What this user may not read is noted in Input.Unread.
func Cluster(ctx context.Context, client *objects.Client, in *Input) error {
	in.CSIDrivers = []string{}
	var bad error
	add := func(o map[string]any) { bad = errors.Join(bad, in.object(o)) }
	for _, r := range []schema.GroupVersionResource{
		objects.PersistentVolumes().Resource, objects.Claims().Resource, objects.Nodes().Resource, objects.StorageClasses().Resource, objects.CSIDrivers().Resource,
	} {
		all, err := client.List(ctx, r, "", metav1.ListOptions{})
		switch objects.OutcomeOf(err) {
		case objects.Done:
		case objects.Refused, objects.Gone: // no right, or an older release without the resource
			in.Unread = append(in.Unread, err.Error())
			if r == objects.CSIDrivers().Resource {
				in.CSIDrivers = nil
			}
		default:
			return err
		}
		for _, o := range all {
			add(o.Object)
		}
	}
	unread, err := objects.ReadFlexUses(ctx, client, nil, add)
	in.Unread = append(in.Unread, unread...)
	if err := errors.Join(err, bad); err != nil {
		return fmt.Errorf("read %s: %w", in.Source, err)
	}
	return nil
}
