package install

import (
	"os"
	"regexp"
	"testing"
)

// TestVersion: the tag of make image, of the base, of the component and of the
// chart is one: what is built is what is installed.
func TestVersion(t *testing.T) {
	want := ""
	for file, pattern := range map[string]string{
		"../../Makefile":                                    `(?m)^VERSION +\?= (\S+)$`,
		manifests + "/base/kustomization.yaml":              `(?m)^  - name: ghcr\.io/flex2csi/flex2csi\n    newTag: (\S+)$`,
		manifests + "/components/attach/kustomization.yaml": `(?m)^  - name: ghcr\.io/flex2csi/flex2csi\n    newTag: (\S+)$`,
		chart + "/Chart.yaml":                               `(?m)^appVersion: (\S+)$`,
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
	}
}

// TestDockerfile: it builds with the Go of go.mod, and what make image does.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)[1]
	for _, want := range []string{"golang:" + string(version), "-ldflags '-s -w'", "-trimpath", "CGO_ENABLED=0", "USER 65532:65532", `ENTRYPOINT ["/flex2csi"]`, "/out/flex2csi /out/flexdriver /"} {
		if !regexp.MustCompile(regexp.QuoteMeta(want)).Match(text) {
			t.Errorf("it lacks %s", want)
		}
	}
	for _, want := range []string{"--user 65532:65532", "--entrypoint /flex2csi", "--file '/flex2csi=", "--file '/flexdriver="} {
		if !regexp.MustCompile(regexp.QuoteMeta(want)).Match(makefile) {
			t.Errorf("make image lacks %s", want)
		}
	}
}
