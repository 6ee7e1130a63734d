package driver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// cephClusters is where ceph-csi finds the monitors of a clusterID. Rook writes it.
const cephClusters = "/etc/ceph-csi-config/config.json"

// cephArgs are the arguments of ceph-csi's executable, which is every one of its drivers.
func cephArgs(kind, name string) func(endpoint, nodeID string) []string {
	return func(endpoint, nodeID string) []string {
		return []string{"--type=" + kind, "--nodeserver=true", "--drivername=" + name, "--endpoint=unix://" + endpoint, "--nodeid=" + nodeID}
	}
}

// monitors returns those of the volume's cluster, as an argument.
func monitors(v volume) (string, error) {
	id := v.context["clusterID"]
	if id == "" {
		return "", status.Error(codes.Internal, "clusterID must be set")
	}
	text, err := os.ReadFile(cephClusters)
	if err != nil {
		return "", fmt.Errorf("error fetching configuration for cluster ID %q: %w", id, err)
	}
	var clusters []struct {
		ClusterID string   `json:"clusterID"` //nolint:tagliatelle // ceph-csi's name
		Monitors  []string `json:"monitors"`
	}
	if err := json.Unmarshal(text, &clusters); err != nil {
		return "", err
	}
	for _, c := range clusters {
		if c.ClusterID == id {
			return strings.Join(c.Monitors, ","), nil
		}
	}
	return "", status.Errorf(codes.Internal, "missing configuration for cluster ID %q", id)
}

// A cephUser is a user of Ceph and a file with its key.
type cephUser struct{ id, keyFile string }

// newCephUser returns the user of a volume that ceph-csi did not make. remove removes the file.
func newCephUser(v volume) (u cephUser, remove func(), err error) {
	if len(v.secrets) == 0 {
		return u, nil, status.Error(codes.InvalidArgument, "provided secret is empty")
	}
	for _, key := range []string{"userID", "userKey"} {
		if v.secrets[key] == "" {
			return u, nil, status.Errorf(codes.InvalidArgument, "missing field '%s' in secrets", key)
		}
	}
	f, err := os.CreateTemp("", "keyfile-")
	if err != nil {
		return u, nil, err
	}
	defer f.Close()
	remove = func() { _ = os.Remove(f.Name()) } // the next CSI driver's too
	if _, err := f.WriteString(v.secrets["userKey"]); err != nil {
		remove()
		return u, nil, err
	}
	return cephUser{v.secrets["userID"], f.Name()}, remove, nil
}

// query runs a program with JSON as its output.
func query(ctx context.Context, to any, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return failure(err, name, args, stderr.Bytes())
	}
	return json.Unmarshal(out, to)
}

// runCeph runs a program. Its errors read as ceph-csi's.
func runCeph(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return failure(err, name, args, out)
	}
	return nil
}

func failure(err error, name string, args []string, said []byte) error {
	masked := slices.Clone(args)
	for i, arg := range masked {
		if strings.HasPrefix(arg, "--keyfile=") {
			masked[i] = "--keyfile=***stripped***"
		}
	}
	return fmt.Errorf("an error (%w) occurred while running %s args: %v: %s", err, name, masked, bytes.TrimSpace(said))
}
