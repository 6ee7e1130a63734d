package migrate_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/flex2csi/flex2csi/internal/bridgeconfig"
	"github.com/flex2csi/flex2csi/internal/mapping"
	"github.com/flex2csi/flex2csi/internal/migrate"
	"github.com/flex2csi/flex2csi/test/testenv"
)

// A finding is what a check is to find after something was changed in the shop.
type finding struct {
	change func(*stock)
	check  string
	status migrate.CheckStatus
	says   string
}

// stock is what the shop has.
type stock struct {
	pv     *corev1.PersistentVolume
	claim  *corev1.PersistentVolumeClaim
	pod    *corev1.Pod
	node   *corev1.Node
	driver *storagev1.CSIDriver
	more   []runtime.Object
}

// finds plans the volume of the shop, once for each change.
func finds(t *testing.T, tests map[string]finding) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := planned(t, test.change)
			for _, c := range v.Checks {
				if c.Name == test.check && c.Status == test.status && strings.Contains(c.Evidence, test.says) {
					if c.Status == migrate.Fails && v.Method != migrate.No {
						t.Errorf("the method is %s: %q", v.Method, v.Why)
					}
					return
				}
			}
			t.Errorf("no %s of %s with %q: %+v", test.status, test.check, test.says, v.Checks)
		})
	}
}

// planned is the plan of the volume of the shop, which a pod has.
func planned(t *testing.T, change func(*stock)) *migrate.PlannedVolume {
	t.Helper()
	all := shop(podOf())
	s := &stock{}
	for _, o := range all {
		switch o := o.(type) {
		case *corev1.PersistentVolume:
			s.pv = o
		case *corev1.PersistentVolumeClaim:
			s.claim = o
		case *corev1.Pod:
			s.pod = o
		case *storagev1.CSIDriver:
			s.driver = o
		case *corev1.Node:
			s.node = o
		}
	}
	change(s)
	config, err := bridgeconfig.Loader{}.Decode([]byte(configuration), mapping.Check)
	if err != nil {
		t.Fatal(err)
	}
	a := newAPI(t, append(all, s.more...)...)
	p := &migrate.Planner{Client: a.client(), Config: config, Now: time.Now}
	plan, err := p.Plan(context.Background(), &migrate.Selection{Names: []string{"pv1"}})
	if err != nil {
		t.Fatal(err)
	}
	return plan.Volumes[0]
}

// TestLive: of a volume of which nothing is amiss nothing is to be decided but its policy.
func TestLive(t *testing.T) {
	v := planned(t, func(*stock) {})
	for _, c := range v.Checks {
		if c.Status != migrate.OK && c.Name != "reclaim-policy" {
			t.Errorf("%+v", c)
		}
	}
	if v.Method != migrate.Live || len(v.Pods) != 1 || len(v.Steps) == 0 || len(v.Expect) == 0 {
		t.Errorf("%+v", v)
	}
}

// TestChecks: docs/reference/checks.md has the checks and what they are about. With -update (make docs)
// the table is written.
func TestChecks(t *testing.T) {
	testenv.Section(t, "../../docs/reference/checks.md", "<!-- The table is made from internal/migrate by make docs. -->\n\n", "\n<!-- Up to here. -->\n",
		migrate.CheckTable(), *update)
}

// TestDecisions: docs/migrate.md says what it is to accept each of them.
func TestDecisions(t *testing.T) {
	text, err := os.ReadFile("../../docs/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n### Decisions\n")
	section, _, _ = strings.Cut(section, "\n### ")
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z][a-z-]+)` \\|").FindAllStringSubmatch(section, -1) {
		rows = append(rows, row[1])
	}
	if diff := cmp.Diff(migrate.Decisions(), rows); diff != "" {
		t.Error(diff)
	}
}
