package assess

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/flex2csi/flex2csi/internal/objects"
)

// Cluster reads a cluster. What this user may not read is noted in Input.Unread.
func Cluster(ctx context.Context, client *objects.Client, in *Input) error {
	in.CSIDrivers = []string{}
	for _, read := range []func() error{
		func() error { return list(ctx, client, in, objects.PersistentVolumes()) },
		func() error { return list(ctx, client, in, objects.Claims()) },
		func() error { return list(ctx, client, in, objects.Pods()) },
		func() error { return list(ctx, client, in, objects.Nodes()) },
		func() error { return list(ctx, client, in, objects.StorageClasses()) },
		func() error {
			unread := len(in.Unread)
			err := list(ctx, client, in, objects.CSIDrivers())
			if len(in.Unread) > unread {
				in.CSIDrivers = nil
			}
			return err
		},
		func() error { return list(ctx, client, in, objects.Deployments()) },
		func() error { return list(ctx, client, in, objects.StatefulSets()) },
		func() error { return list(ctx, client, in, objects.DaemonSets()) },
		func() error { return list(ctx, client, in, objects.ReplicaSets()) },
		func() error { return list(ctx, client, in, objects.ReplicationControllers()) },
		func() error { return list(ctx, client, in, objects.Jobs()) },
		func() error { return list(ctx, client, in, objects.CronJobs()) },
	} {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

func list[T any](ctx context.Context, client *objects.Client, in *Input, kind objects.Kind[T]) error {
	all, err := kind.List(ctx, client, "", metav1.ListOptions{})
	switch objects.OutcomeOf(err) {
	case objects.Done:
	case objects.Refused, objects.Gone: // no right, or an older release without the resource
		in.Unread = append(in.Unread, err.Error())
		return nil
	default:
		return err
	}
	for _, o := range all {
		object, ok := any(o).(metav1.Object)
		if !ok {
			return fmt.Errorf("list %s: a %T is no object", kind.Resource.Resource, o)
		}
		in.Add(object)
	}
	return nil
}
