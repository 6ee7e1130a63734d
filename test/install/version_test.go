package install

import (
	"os"
	"regexp"
	"testing"
)

// TestVersion: make image, base, component and chart have one tag, which is a
// version: what is built is what is installed, today and later.
func TestVersion(t *testing.T) {
	want := ""
	for file, pattern := range map[string]string{
		"../../Makefile":                                    `(?m)^VERSION +\?= (\S+)$`,
		manifests + "/base/kustomization.yaml":              `(?m)^  - name: ghcr\.io/flex2csi/flex2csi\n    newTag: (\S+)$`,
		manifests + "/components/attach/kustomization.yaml": `(?m)^  - name: ghcr\.io/flex2csi/flex2csi\n    newTag: (\S+)$`,
		manifests + "/migrate/job.yaml":                     `(?m)^          image: &image ghcr\.io/flex2csi/flex2csi:(\S+)$`,
		chart + "/Chart.yaml":                               `(?m)^appVersion: (\S+)$`,
		manifests + "/examples/argocd-application.yaml":     `(?m)^    targetRevision: (\S+)$`,
		manifests + "/examples/flux-helmrelease.yaml":       `(?m)^    tag: (\S+)$`,
		manifests + "/examples/rke2-helmchart.yaml":         `(?m)^  chart: .*/(v[^/]+)/`,
		"../e2e/sabotage/sabotage_test.go":                  `"ghcr\.io/flex2csi/flex2csi:(\S+)"`,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Errorf("%s has nothing that fits %s", file, pattern)
			continue
		}
		if want == "" {
			want = string(found[1])
		}
		if got := string(found[1]); got != want {
			t.Errorf("%s has %s, another one %s", file, got, want)
		}
		// A tag such as dev or latest names another image tomorrow.
		if !regexp.MustCompile(`^v\d+\.\d+\.\d+$`).Match(found[1]) {
			t.Errorf("%s: %s is no version", file, found[1])
		}
	}
}
