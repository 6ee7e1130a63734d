package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/flex2csi/flex2csi/internal/hostfile"
	"github.com/flex2csi/flex2csi/internal/objects"
)

// The copies in a directory are of one cluster, which a file names: in another one a record that
// is missing is not lost, and must not be created.

const clusterFile = "cluster"

// A journalCluster is the content of that file.
type journalCluster struct {
	// UID of namespace kube-system, which lives as long as the cluster; empty: the
	// user may not read it.
	UID    string `json:"uid,omitempty"`
	Server string `json:"server"`
}

// other says how the cluster of a journal differs from this one; empty: it is the same.
// The UID decides where both are known: one cluster has many addresses, and an address
// can have a new cluster behind it.
func (its journalCluster) other(this journalCluster) string {
	known := its.UID != "" && this.UID != ""
	switch {
	case known && its.UID == this.UID, !known && its.Server == this.Server:
		return ""
	case its.Server == this.Server:
		return fmt.Sprintf("at the same address, %s, but its namespace kube-system had the UID %s, and this one's has %s", its.Server, its.UID, this.UID)
	}
	return fmt.Sprintf("%s, not %s", its.Server, this.Server)
}

// clusterServer has the requests to identify a cluster.
type clusterServer interface {
	Objects() *objects.Client
	Server() string
}

func thisCluster(ctx context.Context, c clusterServer) journalCluster {
	this := journalCluster{Server: c.Server()}
	if namespace, err := objects.Namespaces().Get(ctx, c.Objects(), "", "kube-system"); err == nil && namespace != nil {
		this.UID = string(namespace.UID)
	}
	return this
}

// sameCluster refuses the directory of another cluster. A new directory is allowed.
func sameCluster(ctx context.Context, c clusterServer, dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, clusterFile))
	if errors.Is(err, fs.ErrNotExist) {
		return foreignRecords(dir)
	}
	if err != nil {
		return fmt.Errorf("read which cluster the journal is about: %w", err)
	}
	var its journalCluster
	if err := json.Unmarshal(data, &its); err != nil {
		return fmt.Errorf("read which cluster the journal is about: %s: %w", filepath.Join(dir, clusterFile), err)
	}
	if other := its.other(thisCluster(ctx, c)); other != "" {
		return fmt.Errorf("%s is the journal of another cluster (%s): give this one's, or an empty directory, with --journal; nothing was changed", dir, other)
	}
	return nil
}

// foreignRecords refuses records without the name of their cluster: they were copied.
func foreignRecords(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the journal: %w", err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".json") {
			return fmt.Errorf("%s has records (%s) and no file %q that says of which cluster they are: give another directory with --journal, where what is in the cluster is enough; nothing was changed", dir, e.Name(), clusterFile)
		}
	}
	return nil
}

// bindJournal writes the file for this cluster, of which the directory is (sameCluster).
func bindJournal(ctx context.Context, c clusterServer, dir string) error {
	if err := hostfile.MakeDir(dir); err != nil {
		return fmt.Errorf("make the directory of the journal: %w", err)
	}
	path := filepath.Join(dir, clusterFile)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	data, err := json.Marshal(thisCluster(ctx, c))
	if err != nil {
		return err
	}
	if err := hostfile.WriteFile(path, append(data, '\n')); err != nil {
		return fmt.Errorf("write which cluster the journal is about: %w", err)
	}
	return nil
}
