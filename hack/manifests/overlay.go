package manifests

import (
	"fmt"
	"strings"

	"github.com/flex2csi/flex2csi/internal/distribution"
)

// Overlay is the kustomization of a distribution.
func Overlay(d distribution.Distribution) string {
	var b strings.Builder
	b.WriteString("# Made from internal/distribution by make docs.\n#\n")
	comment(&b, d.Title+": plugin directory "+d.PluginDir+", according to "+d.Source+".")
	if d.Trap != "" {
		b.WriteString("#\n")
		comment(&b, d.Trap)
	}
	b.WriteString("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - ../../base\n")
	if extra, ok := extras()[d.Name]; ok {
		b.WriteString("components:\n  - ../../components/" + extra + "\n")
	}
	b.WriteString("patches:\n  - target:\n      kind: DaemonSet\n      name: flex2csi-node\n    patch: |\n")
	patch(&b, "/spec/template/spec/initContainers/0/args/4", "--distribution=", "--distribution="+d.Name)
	if d.KubeletDir != distribution.DefaultKubeletDir {
		const args = "--kubelet-dir=" + distribution.DefaultKubeletDir
		patch(&b, "/spec/template/spec/initContainers/0/args/2", args, "--kubelet-dir="+d.KubeletDir)
		patch(&b, "/spec/template/spec/containers/0/args/2", args, "--kubelet-dir="+d.KubeletDir)
		patch(&b, "/spec/template/spec/containers/0/volumeMounts/3/mountPath", distribution.DefaultKubeletDir, d.KubeletDir)
		patch(&b, "/spec/template/spec/volumes/0/hostPath/path", distribution.DefaultKubeletDir, d.KubeletDir)
	}
	return b.String()
}

// extras are the components that a distribution cannot do without.
func extras() map[string]string { return map[string]string{"openshift": "openshift"} }

// patch replaces a value, if it is what it is taken for.
func patch(b *strings.Builder, path, from, to string) {
	fmt.Fprintf(b, "      - {op: test, path: %s, value: %s}\n", path, from)
	fmt.Fprintf(b, "      - {op: replace, path: %s, value: %s}\n", path, to)
}

// comment wraps text.
func comment(b *strings.Builder, text string) {
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > 80 && line != "#" {
			b.WriteString(line + "\n")
			line = "#"
		}
		line += " " + word
	}
	b.WriteString(line + "\n")
}
