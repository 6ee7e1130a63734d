package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/flex2csi/flex2csi/internal/kube"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/internal/migrate/journal"
	"github.com/flex2csi/flex2csi/internal/process"
)

// defaultJournal is where the journal is kept, below where people are.
const defaultJournal = "./flex2csi-migration"

// lookOptions are those of all that only look at migrations.
type lookOptions struct {
	operatorAccess
	journal string
	output  string
}

func (o *lookOptions) add(set *pflag.FlagSet) {
	set.StringVarP(&o.output, "output", "o", "table", "table, wide, json or yaml: a `format`")
	set.StringVar(&o.journal, "journal", defaultJournal, "`directory` of the journal, if it is here; it is in the cluster as well")
	o.operatorAccess.add(set)
}

func (o *lookOptions) check() error {
	if formats := []string{"table", "wide", "json", "yaml"}; !slices.Contains(formats, o.output) {
		return usagef("--output %s: want one of %s", o.output, strings.Join(formats, ", "))
	}
	return nil
}

// observer connects. A directory that is about another cluster says nothing of
// this one.
func (o *lookOptions) observer(ctx context.Context, env environment) (*migrate.Observer, error) {
	cluster, err := o.connect()
	if err != nil {
		return nil, err
	}
	records, err := o.records(ctx, cluster, env)
	if err != nil {
		return nil, err
	}
	return &migrate.Observer{Client: cluster.Objects(), Journal: records, Server: cluster.Server(), Now: time.Now, Dead: process.Dead}, nil
}

func (o *lookOptions) records(ctx context.Context, cluster *kube.Cluster, env environment) (migrate.Records, error) {
	inCluster := journal.NewCluster(cluster.Objects(), migrate.Namespace)
	if err := sameCluster(ctx, cluster, o.journal); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		fmt.Fprintf(env.err, "note: only the journal in the cluster is looked at: %v\n", err)
		return inCluster, nil
	}
	return &journal.Both{Disk: &journal.Disk{Dir: o.journal}, Cluster: inCluster}, nil
}

// A view is what people and programs can look at.
type view interface {
	Table(out io.Writer, wide bool) error
	JSON() ([]byte, error)
	YAML() ([]byte, error)
}

func (o *lookOptions) print(v view, env environment) error {
	var text []byte
	var err error
	switch o.output {
	case "yaml":
		text, err = v.YAML()
	case "json":
		text, err = v.JSON()
	default:
		return v.Table(env.out, o.output == "wide")
	}
	if err != nil {
		return err
	}
	_, err = env.out.Write(text)
	return err
}

// migrateStatusOptions are the flags of migrate status.
type migrateStatusOptions struct{ lookOptions }

func (o *migrateStatusOptions) flags(env environment) *pflag.FlagSet {
	set := flags("migrate status", `Show all volumes that were migrated, are on their way, or were taken back: how far
they are, what went wrong, what to do next, and which pods still have the mount of
the bridge beside the new one, as they have until they are restarted. It reads
only.

A NAME is that of a PersistentVolume, or namespace/name of a claim; with NAMEs
only those are shown, and the exit status is 1 if one of them is none.`, env)
	set.SetInterspersed(true)
	o.add(set)
	return set
}

// migrateStatus is flex2csi migrate status.
func migrateStatus(args []string, env environment) error {
	var o migrateStatusOptions
	set := o.flags(env)
	if err := set.Parse(args); err != nil {
		return &usageError{err}
	}
	if err := o.check(); err != nil {
		return err
	}
	ctx, stop := untilInterrupted()
	defer stop()
	observer, err := o.observer(ctx, env)
	if err != nil {
		return err
	}
	situation, err := observer.Status(ctx)
	if err != nil {
		return err
	}
	situation, missing := situation.Filter(set.Args())
	if err := o.print(situation, env); err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("nothing is known of a migration of %s", strings.Join(missing, ", "))
	}
	return nil
}

// sayHalted says what is more urgent than whatever was asked for: a migration that
// stopped where there is no PersistentVolume. Who may not read the journal is not
// told. It returns the volumes.
func sayHalted(ctx context.Context, cluster *kube.Cluster, env environment) (volumes []string) {
	observer := &migrate.Observer{Client: cluster.Objects(), Journal: journal.NewCluster(cluster.Objects(), migrate.Namespace), Now: time.Now, Dead: process.Dead}
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
		fmt.Fprintf(env.err, "note: the migration of %s is not finished, and nobody is at it: %s\n", v.Name, v.Next)
	}
	return volumes
}
