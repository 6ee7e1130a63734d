package daemon

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/flex2csi/flex2csi/internal/bridge"
	"github.com/flex2csi/flex2csi/internal/bridgestatus"
	"github.com/flex2csi/flex2csi/internal/csivol"
	"github.com/flex2csi/flex2csi/internal/statedir"
	"github.com/flex2csi/flex2csi/internal/volstate"
	"github.com/flex2csi/flex2csi/pkg/flex"
)

// measured are metrics to which something of everything was reported.
func measured(t *testing.T) *Metrics {
	t.Helper()
	m := NewMetrics()
	m.ObserveRPC("csi.example.com", "/csi.v1.Node/NodeStageVolume", "OK", time.Second)
	m.ObserveRequest("get", "persistentvolumes", 200, time.Second)
	m.begin(flex.CommandMount)("", time.Second)
	m.begin(flex.CommandMount)(flex.CodeAborted, time.Second)
	m.begin("made-up")(flex.CodeUnimplemented, time.Second)
	m.begin(flex.CommandUnmount) // not answered yet
	now := time.Now()
	published := func(driver string, stats csivol.Stats) bridge.VolumeState {
		return bridge.VolumeState{Stats: &stats, Record: &volstate.Record{Driver: driver, Name: "pv-1", Targets: map[string]*volstate.Target{"/c": {Publish: volstate.Done, Bound: true}}}}
	}
	again := published("csi.example.com", csivol.Stats{Bytes: csivol.Usage{Total: 7}})
	again.Record.Targets, again.Record.Attach, again.Record.Object, again.AttachmentLost = nil, volstate.Done, "csi-1", true
	v := &view{
		time: now,
		drivers: []bridgestatus.DriverStatus{
			{FlexDriver: "a/one", CSIDriver: "csi.example.com", Services: []bridgestatus.Service{{Name: "node", Connected: true, Reconnects: 2}, {Name: "controller"}}},
			{FlexDriver: "a/two", CSIDriver: "csi.example.com", Services: []bridgestatus.Service{{Name: "node"}}},
		},
		volumes: []bridge.VolumeState{
			{
				Record: &volstate.Record{
					Driver: "csi.example.com", Stage: volstate.Doing, StageDead: "dead", Attach: volstate.Undoing, Object: "csi-2",
					Targets: map[string]*volstate.Target{"/a": {Dead: "dead"}, "/b": {}},
				},
				UncertainSince: now.Add(-time.Hour),
				Operations:     []bridge.OperationStatus{{Since: now.Add(-time.Minute)}, {Since: now}},
			},
			published("csi.example.com", csivol.Stats{Bytes: csivol.Usage{Total: 100}}),
			again,
			published("removed.example.com", csivol.Stats{Bytes: csivol.Usage{Total: 9}, Inodes: csivol.Usage{Available: 3}}),
		},
		cluster: &bridgestatus.ClusterStatus{Reachable: true},
		lost:    make([]bridge.LostStatus, 2),
		files:   files{pending: make([]statedir.PendingUnmount, 3), broken: make([]string, 1)},
	}
	m.registry.MustRegister(newCollector(func() *view { return v }))
	return m
}

func gather(t *testing.T, m *Metrics) []*dto.MetricFamily {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// TestMetricsLint keeps to the rules of Prometheus.
func TestMetricsLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(measured(t).registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// documentedMetric is a row of docs/metrics.md.
var documentedMetric = regexp.MustCompile("(?m)^\\| `((?:csi|flex2csi)_[a-z0-9_]+)` \\| ([a-z]+) \\|([^|]*)\\|")

// TestMetricsDocumented: docs/metrics.md lists all metrics, and no others.
func TestMetricsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, row := range documentedMetric.FindAllStringSubmatch(string(text), -1) {
		labels := strings.FieldsFunc(row[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })
		slices.Sort(labels)
		documented[row[1]] = row[2] + " " + strings.Join(labels, " ")
	}
	registered := map[string]string{}
	for _, f := range gather(t, measured(t)) {
		if name := f.GetName(); strings.HasPrefix(name, "csi_") || strings.HasPrefix(name, "flex2csi_") {
			registered[name] = strings.ToLower(f.GetType().String()) + " " + strings.Join(labelsOf(f), " ")
		}
	}
	if diff := cmp.Diff(registered, documented); diff != "" {
		t.Errorf("registered (-), documented (+):\n%s", diff)
	}
	controller, err := os.ReadFile("../../docs/controller.md") // its own, which internal/controller tests
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`(?:csi_sidecar|flex2csi)_[a-z_]+`).FindAllString(string(text), -1) {
		if registered[strings.TrimSuffix(name, "_count")] == "" && !strings.Contains(string(controller), "`"+name+"`") {
			t.Errorf("%s is used, in an alert perhaps, and there is no such metric", name)
		}
	}
}

func labelsOf(f *dto.MetricFamily) (names []string) {
	for _, pair := range f.GetMetric()[0].GetLabel() {
		names = append(names, pair.GetName())
	}
	slices.Sort(names)
	return names
}

func TestMetricsValues(t *testing.T) {
	const want = `
# HELP flex2csi_callouts_in_flight FlexVolume callouts being answered.
# TYPE flex2csi_callouts_in_flight gauge
flex2csi_callouts_in_flight{command="mount"} 0
flex2csi_callouts_in_flight{command="unknown"} 0
flex2csi_callouts_in_flight{command="unmount"} 1
# HELP flex2csi_corrupted_mounts Mounts that do not work any more, such as FUSE filesystems without their process.
# TYPE flex2csi_corrupted_mounts gauge
flex2csi_corrupted_mounts{driver_name="csi.example.com"} 2
flex2csi_corrupted_mounts{driver_name="removed.example.com"} 0
# HELP flex2csi_driver_connected 1 if there is a connection to the service of the CSI driver. It is made when it is needed.
# TYPE flex2csi_driver_connected gauge
flex2csi_driver_connected{driver_name="csi.example.com",flex_driver="a/one",service="controller"} 0
flex2csi_driver_connected{driver_name="csi.example.com",flex_driver="a/one",service="node"} 1
flex2csi_driver_connected{driver_name="csi.example.com",flex_driver="a/two",service="node"} 0
# HELP flex2csi_driver_reconnects_total Connections to the service of the CSI driver after the first one.
# TYPE flex2csi_driver_reconnects_total counter
flex2csi_driver_reconnects_total{driver_name="csi.example.com",flex_driver="a/one",service="controller"} 0
flex2csi_driver_reconnects_total{driver_name="csi.example.com",flex_driver="a/one",service="node"} 2
flex2csi_driver_reconnects_total{driver_name="csi.example.com",flex_driver="a/two",service="node"} 0
# HELP flex2csi_lost_mounts Mounts that pods have and that no record knows of.
# TYPE flex2csi_lost_mounts gauge
flex2csi_lost_mounts 2
# HELP flex2csi_oldest_uncertain_age_seconds How long the longest attach, stage, publish or their reverse has been neither done nor undone; 0 if there is none.
# TYPE flex2csi_oldest_uncertain_age_seconds gauge
flex2csi_oldest_uncertain_age_seconds{driver_name="csi.example.com"} 3600
flex2csi_oldest_uncertain_age_seconds{driver_name="removed.example.com"} 0
# HELP flex2csi_oldest_operation_age_seconds How long the oldest operation has been under way; 0 if there is none.
# TYPE flex2csi_oldest_operation_age_seconds gauge
flex2csi_oldest_operation_age_seconds{driver_name="csi.example.com"} 60
flex2csi_oldest_operation_age_seconds{driver_name="removed.example.com"} 0
# HELP flex2csi_operations_in_flight Operations on volumes that run or wait for their turn.
# TYPE flex2csi_operations_in_flight gauge
flex2csi_operations_in_flight{driver_name="csi.example.com"} 2
flex2csi_operations_in_flight{driver_name="removed.example.com"} 0
# HELP flex2csi_volume_stats_capacity_bytes Capacity of the volume as its CSI driver tells.
# TYPE flex2csi_volume_stats_capacity_bytes gauge
flex2csi_volume_stats_capacity_bytes{driver_name="csi.example.com",persistentvolume="pv-1"} 100
flex2csi_volume_stats_capacity_bytes{driver_name="removed.example.com",persistentvolume="pv-1"} 9
# HELP flex2csi_volume_stats_inodes_free Inodes free in the volume.
# TYPE flex2csi_volume_stats_inodes_free gauge
flex2csi_volume_stats_inodes_free{driver_name="csi.example.com",persistentvolume="pv-1"} 0
flex2csi_volume_stats_inodes_free{driver_name="removed.example.com",persistentvolume="pv-1"} 3
# HELP flex2csi_api_server_reachable 1 if the last request to the API server was answered; absent if none are made.
# TYPE flex2csi_api_server_reachable gauge
flex2csi_api_server_reachable 1
# HELP flex2csi_volume_attachments VolumeAttachments that records of this node name, by CSI driver and state.
# TYPE flex2csi_volume_attachments gauge
flex2csi_volume_attachments{driver_name="csi.example.com",state="attached"} 0
flex2csi_volume_attachments{driver_name="csi.example.com",state="attaching"} 0
flex2csi_volume_attachments{driver_name="csi.example.com",state="detaching"} 1
flex2csi_volume_attachments{driver_name="csi.example.com",state="lost"} 1
flex2csi_volume_attachments{driver_name="removed.example.com",state="attached"} 0
flex2csi_volume_attachments{driver_name="removed.example.com",state="attaching"} 0
flex2csi_volume_attachments{driver_name="removed.example.com",state="detaching"} 0
flex2csi_volume_attachments{driver_name="removed.example.com",state="lost"} 0
# HELP flex2csi_pending_unmounts Unmounts that flexdriver made while the daemon was down, and that the daemon has not completed.
# TYPE flex2csi_pending_unmounts gauge
flex2csi_pending_unmounts 3
# HELP flex2csi_broken_state_files State files that could not be read; those put aside stay until an operator removes them.
# TYPE flex2csi_broken_state_files gauge
flex2csi_broken_state_files 1
`
	m := measured(t)
	var names []string
	for line := range strings.SplitSeq(want, "\n") {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ := strings.Cut(rest, " ")
			names = append(names, name)
		}
	}
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	phases := map[string]float64{}
	for _, f := range gather(t, m) {
		if f.GetName() != "flex2csi_volumes" {
			continue
		}
		for _, metric := range f.GetMetric() {
			phases[metric.GetLabel()[0].GetValue()+" "+metric.GetLabel()[1].GetValue()] = metric.GetGauge().GetValue()
		}
	}
	if len(phases) != 2*len(bridgestatus.Phases()) || phases["csi.example.com Staging"] != 1 || phases["csi.example.com Published"] != 1 || phases["removed.example.com Published"] != 1 || phases["csi.example.com Idle"] != 0 {
		t.Errorf("volumes are %v", phases)
	}
}
