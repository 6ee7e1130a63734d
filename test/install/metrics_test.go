package install

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestMonitoring: what the Prometheus Operator gets is what it knows, no field
// misspelt, and fits the pods and objects that are there.
func TestMonitoring(t *testing.T) {
	objects := overlay(t, "kubeadm", "attach", "monitoring")
	var monitor monitoringv1.PodMonitor
	strict(t, find(t, objects, "PodMonitor", "flex2csi").Object, &monitor)
	var rules monitoringv1.PrometheusRule
	strict(t, find(t, objects, "PrometheusRule", "flex2csi").Object, &rules)

	endpoint := monitor.Spec.PodMetricsEndpoints[0]
	for _, name := range []string{"DaemonSet flex2csi-node", "Deployment flex2csi-controller", "DaemonSet flex2csi-attach"} {
		kind, name, _ := strings.Cut(name, " ")
		o := find(t, objects, kind, name)
		spec := get[corev1.PodSpec](t, o, "spec.template.spec")
		proxy := spec.Containers[len(spec.Containers)-1]
		if len(proxy.Ports) != 1 || proxy.Ports[0].Name != *endpoint.Port {
			t.Errorf("%s has the ports %v, the PodMonitor wants %s", name, proxy.Ports, *endpoint.Port)
		}
		if !slices.Contains(spec.Containers[0].Args, "--http-endpoint=127.0.0.1:9898") || !slices.Contains(proxy.Args, "--upstream=http://127.0.0.1:9898/") {
			t.Errorf("the proxy of %s asks another address: %q, %q", name, spec.Containers[0].Args, proxy.Args)
		}
		labels := get[map[string]string](t, o, "spec.template.metadata.labels")
		for key, value := range monitor.Spec.Selector.MatchLabels {
			if labels[key] != value {
				t.Errorf("%s has the labels %v, the PodMonitor wants %s=%s", name, labels, key, value)
			}
		}
		if labels[monitor.Spec.JobLabel] != "flex2csi" {
			t.Errorf("the job of %s is %s, in the alerts it is flex2csi", name, labels[monitor.Spec.JobLabel])
		}
	}
	secret := find(t, objects, "Secret", endpoint.Authorization.Credentials.Name)
	account := secret.GetAnnotations()[corev1.ServiceAccountNameKey]
	find(t, objects, "ServiceAccount", account)
}

func strict(t *testing.T, object values, into any) {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Error(err)
	}
}

// TestExpressions: alerts and dashboard are PromQL, and about metrics that
// docs/metrics.md or docs/controller.md has.
func TestExpressions(t *testing.T) {
	var rules monitoringv1.PrometheusRule
	strict(t, find(t, overlay(t, "kubeadm", "monitoring"), "PrometheusRule", "flex2csi").Object, &rules)
	var expressions []string
	for _, rule := range rules.Spec.Groups[0].Rules {
		expressions = append(expressions, rule.Expr.String())
		if rule.Annotations["summary"] == "" || rule.Alert == "" {
			t.Errorf("the alert %q lacks a name or a summary", rule.Alert)
		}
	}
	alerts := len(expressions)
	expressions = append(expressions, dashboard(t)...)
	if alerts < 12 || len(expressions)-alerts < 20 {
		t.Errorf("there are only %d alerts and %d panels", alerts, len(expressions)-alerts)
	}
	known := readFile(t, "../../docs/metrics.md") + readFile(t, "../../docs/controller.md")
	for _, expression := range expressions {
		checkExpression(t, expression, known)
	}
}

func checkExpression(t *testing.T, expression, known string) {
	t.Helper()
	plain := strings.NewReplacer("$__rate_interval", "5m", "$node", ".*").Replace(expression)
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(plain)
	if err != nil {
		t.Errorf("%s: %v", expression, err)
		return
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok || selector.Name == "up" || strings.HasPrefix(selector.Name, "process_") {
			return nil
		}
		name := regexp.MustCompile(`_(count|bucket|sum)$`).ReplaceAllString(selector.Name, "")
		if !regexp.MustCompile("`" + name + "[`{]").MatchString(known) {
			t.Errorf("%s: there is no metric %s", expression, selector.Name)
		}
		return nil
	})
}

// dashboard are the expressions of the dashboard. Panels are numbered once.
func dashboard(t *testing.T) (expressions []string) {
	t.Helper()
	type panel struct {
		ID      int
		Title   string
		Targets []struct{ Expr string }
	}
	var board struct {
		UID    string
		Panels []panel
	}
	config := find(t, overlay(t, "kubeadm", "monitoring"), "ConfigMap", "flex2csi-dashboard")
	if err := json.Unmarshal([]byte(get[map[string]string](t, config, "data")["flex2csi.json"]), &board); err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for _, p := range board.Panels {
		if seen[p.ID] || p.Title == "" {
			t.Errorf("panel %d, %q: twice, or without a title", p.ID, p.Title)
		}
		seen[p.ID] = true
		for _, target := range p.Targets {
			expressions = append(expressions, target.Expr)
		}
	}
	return expressions
}

// TestAlertsOfDocument: the alerts of docs/metrics.md are those that are installed.
func TestAlertsOfDocument(t *testing.T) {
	_, table, _ := strings.Cut(readFile(t, "../../docs/metrics.md"), "\n## Alerts\n")
	var documented, installed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(Flex2csi\\w+)` \\|").FindAllStringSubmatch(table, -1) {
		documented = append(documented, row[1])
	}
	var rules monitoringv1.PrometheusRule
	strict(t, find(t, overlay(t, "kubeadm", "monitoring"), "PrometheusRule", "flex2csi").Object, &rules)
	for _, rule := range rules.Spec.Groups[0].Rules {
		installed = append(installed, rule.Alert)
	}
	if diff := cmp.Diff(documented, installed); diff != "" {
		t.Errorf("in docs/metrics.md (-), installed (+):\n%s", diff)
	}
}
