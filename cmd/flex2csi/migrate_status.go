package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
)

// defaultJournal is the default of --journal.
const defaultJournal = "./flex2csi-migration"

// lookOptions are the flags of the commands that only read.
type lookOptions struct {
	api     apiAccess
	home    ownNamespace
	journal string
	format  outputFormat
}

func newLookOptions(more ...string) lookOptions {
	return lookOptions{format: outputFormat{formats: append([]string{table, wide, asJSON, asYAML}, more...)}}
}

func (o *lookOptions) add(c *cobra.Command) {
	o.format.add(c)
	c.Flags().StringVar(&o.journal, "journal", defaultJournal, "`directory` of the copies of the journal, if it is on this machine, to find records that are lost; the journal is in the cluster")
	o.home.add(c, &o.api)
	o.api.add(c)
}

// observer connects. The directory of another cluster is ignored.
func (o *lookOptions) observer(ctx context.Context, env environment) (*migrate.Observer, error) {
	cluster, err := o.api.connect(kube.Options{UserAgent: migrateAgent})
	if err != nil {
		return nil, err
	}
	records, err := o.records(ctx, cluster, env)
	if err != nil {
		return nil, err
	}
	return &migrate.Observer{Client: cluster.Objects(), Journal: records, Server: cluster.Server(), Now: time.Now, Dead: journal.ProcessDead}, nil
}

func (o *lookOptions) records(ctx context.Context, cluster *kube.Cluster, env environment) (*journal.Journal, error) {
	if err := sameCluster(ctx, cluster, o.journal); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		fmt.Fprintf(env.err, "note: only the journal in the cluster was read: %v\n", err)
		return o.home.journal(cluster, ""), nil
	}
	return o.home.journal(cluster, o.journal), nil
}

// migrateStatusOptions are the flags of migrate status.
type migrateStatusOptions struct {
	lookOptions
	namespaces namespaceOptions
	watch      watchOption
}

func newMigrateStatus() *cobra.Command {
	o := migrateStatusOptions{lookOptions: newLookOptions(asName, asHTML)}
	c := &cobra.Command{
		Use:   "status [NAME...]",
		Short: "Show the progress of migrations, and what is wrong with them",
		Long: `Show all volumes that were migrated, are being migrated, or were rolled back: the
stage, what went wrong, what to do next, and which pods still have the mount of the
bridge in addition to the new one, as they have until they are restarted. It reads
only.

A NAME is that of a PersistentVolume, or namespace/name of a claim; with NAMEs only
those are shown, and the exit status is 1 if one of them is of no migration. It is 1
also if a claim has no PersistentVolume and no process works on it, or if a record
of the journal cannot be read, or is left only as a copy (NO RECORD).`,
		RunE: o.run,
	}
	o.namespaces.add(c, &o.api)
	o.watch.add(c, 5*time.Second)
	o.add(c)
	c.ValidArgsFunction = o.api.names(migratedVolumes)
	return c
}

func (o *migrateStatusOptions) run(c *cobra.Command, names []string) error {
	ctx, stop := untilInterrupted(c)
	defer stop()
	return o.watch.show(ctx, streams(c), func(ctx context.Context, env environment) error { return o.status(ctx, names, env) })
}

func (o *migrateStatusOptions) status(ctx context.Context, names []string, env environment) error {
	observer, err := o.observer(ctx, env)
	if err != nil {
		return err
	}
	situation, err := observer.Status(ctx)
	if err != nil {
		return err
	}
	situation, missing := situation.Filter(names)
	situation.Volumes = slices.DeleteFunc(slices.Clone(situation.Volumes), func(v migrate.VolumeStatus) bool { return o.namespaces.without(v.Claim) })
	if err := o.format.print(env.out, situation, situation.Show); err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("nothing is known of a migration of %s; flex2csi migrate status without names shows all", strings.Join(missing, ", "))
	}
	return situation.Urgent()
}

// sayHalted warns of halted migrations, and returns their volumes. A volume without a
// PersistentVolume is urgent. It says nothing if the user may not read the journal.
func sayHalted(ctx context.Context, cluster *kube.Cluster, home ownNamespace, env environment) (volumes []string) {
	observer := &migrate.Observer{Client: cluster.Objects(), Journal: home.journal(cluster, ""), Now: time.Now, Dead: journal.ProcessDead}
	halted, err := observer.Halted(ctx)
	if err != nil {
		return nil
	}
	for _, v := range halted {
		volumes = append(volumes, v.Name)
		if v.State == migrate.WithoutVolume {
			fmt.Fprintf(env.err, "URGENT: the migration of %s stopped where there is no PersistentVolume: %s\n", v.Name, v.Next)
			continue
		}
		fmt.Fprintf(env.err, "note: the migration of %s is not finished, and no process works on it: %s\n", v.Name, v.Next)
	}
	return volumes
}
