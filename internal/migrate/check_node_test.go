package migrate_test

import (
	"testing"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/flex2csi/flex2csi/internal/distribution"
	"github.com/flex2csi/flex2csi/internal/migrate"
)

// TestNodeChecks: a kubelet before 1.28 leaves a pod Terminating that had its volume
// handed over, and one before 1.24 stages elsewhere.
func TestNodeChecks(t *testing.T) {
	kubelet := func(version string) func(*stock) {
		return func(s *stock) { s.node.Status.NodeInfo.KubeletVersion = version }
	}
	finds(t, map[string]finding{
		"1.23":         {kubelet("v1.23.17"), "node", migrate.Fails, "is v1.23.17: the kubelet stages below"},
		"1.24":         {kubelet("v1.24.17"), "node", migrate.NotLive, "is v1.24.17: a restarted kubelet"},
		"1.27":         {kubelet("v1.27.16+rke2r2"), "node", migrate.NotLive, "stays Terminating"},
		"1.30":         {kubelet("v1.30.14"), "node", migrate.Decide, "flex2csi is tested with 1.24, 1.28"},
		"1.38":         {kubelet("v1.38.0"), "node", migrate.Decide, "1.36 and 1.37"},
		"no version":   {kubelet(""), "node", migrate.Decide, "no release of Kubernetes that is known"},
		"SELinux 1.37": {seLinux("v1.37.1"), "csi-driver", migrate.Decide, "v1.37.1, does so by default"},
		"SELinux 1.36": {seLinux("v1.36.3"), "csi-driver", migrate.Note, "seLinuxMount: true"},
	})
}

// TestTestedKubelets: those that make e2e-releases migrates on need no decision.
func TestTestedKubelets(t *testing.T) {
	for _, minor := range distribution.TestedMinors() {
		v := planned(t, func(s *stock) { s.node.Status.NodeInfo.KubeletVersion = "v" + minor.String() + ".9" })
		for _, c := range v.Checks {
			if c.Name == "node" && c.Status == migrate.Decide {
				t.Errorf("%s: %s", minor, c.Evidence)
			}
		}
		if live := v.Method == migrate.Live; live != minor.Has(distribution.Reconstruction()) {
			t.Errorf("%s: the plan is %s: %q", minor, v.Method, v.Why)
		}
	}
}

func seLinux(version string) func(*stock) {
	return func(s *stock) {
		s.node.Status.NodeInfo.KubeletVersion = version
		s.driver.Spec = storagev1.CSIDriverSpec{AttachRequired: s.driver.Spec.AttachRequired, SELinuxMount: new(true)}
	}
}

// TestOldKubelet: the volume of a StatefulSet's pod on 1.24 is migrated while the pod is
// restarted.
func TestOldKubelet(t *testing.T) {
	v := planned(t, func(s *stock) { s.node.Status.NodeInfo.KubeletVersion = "v1.24.17" })
	if v.Method != migrate.PodRestart {
		t.Errorf("%s: %q", v.Method, v.Why)
	}
}
