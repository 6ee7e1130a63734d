// Package render makes objects of the manifests in install/, as kubectl apply -k
// and helm install do.
package render

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Kustomize builds a directory with a kustomization.
func Kustomize(dir string) ([]*unstructured.Unstructured, error) {
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	text, err := objects.AsYaml()
	if err != nil {
		return nil, err
	}
	return decode(text)
}

// File reads a file of objects.
func File(path string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return decode(text)
}

// Overlay builds an overlay of install with components of install on top, as in a user's
// own kustomization.
func Overlay(install, overlay string, components ...string) ([]*unstructured.Unstructured, error) {
	if len(components) == 0 {
		return Kustomize(filepath.Join(install, "overlays", overlay))
	}
	text := "resources: [PATH/overlays/" + overlay + "]\ncomponents:\n"
	for _, component := range components {
		text += "- PATH/components/" + component + "\n"
	}
	return Own(install, text)
}

// Own builds a user's own kustomization, in which PATH is install.
func Own(install, kustomization string) ([]*unstructured.Unstructured, error) {
	dir, err := os.MkdirTemp("", "kustomize-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	absolute, err := filepath.Abs(install)
	if err != nil {
		return nil, err
	}
	relative, err := filepath.Rel(dir, absolute) // kustomize wants no absolute paths
	if err != nil {
		return nil, err
	}
	text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n" + strings.ReplaceAll(kustomization, "PATH", relative)
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	return Kustomize(dir)
}

// A Release is a chart that is installed.
type Release struct {
	Namespace string
	Values    map[string]any
	// Kubernetes is the API server's version; empty: a current one.
	Kubernetes string
}

// Example adds to values the drivers of install/base/config.yaml, unless they have some.
func Example(values map[string]any) map[string]any {
	all := map[string]any{"drivers": []any{map[string]any{"flexDriver": "example.com/disk", "csiDriver": "disk.csi.example.com"}}}
	maps.Copy(all, values)
	return all
}

// Texts renders a chart's templates, by their path.
func (r Release) Texts(chart string) (map[string]string, error) {
	c, err := loader.LoadDir(chart)
	if err != nil {
		return nil, err
	}
	options := common.ReleaseOptions{Name: "flex2csi", Namespace: r.Namespace, IsInstall: true}
	// In a test, Helm's default is a version of years ago.
	version, err := common.ParseKubeVersion(cmp.Or(r.Kubernetes, "v1.37.1"))
	if err != nil {
		return nil, err
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	values, err := util.ToRenderValues(c, r.Values, options, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.RenderWithContext(context.Background(), c, values)
}

// Objects renders what helm install makes of a chart.
func (r Release) Objects(chart string) ([]*unstructured.Unstructured, error) {
	return r.objects(chart, false)
}

// Hooks renders what Helm makes at another time, such as for helm test.
func (r Release) Hooks(chart string) ([]*unstructured.Unstructured, error) {
	return r.objects(chart, true)
}

func (r Release) objects(chart string, hooks bool) (all []*unstructured.Unstructured, err error) {
	texts, err := r.Texts(chart)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		objects, err := decode([]byte(texts[name]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", name, err, texts[name])
		}
		for _, o := range objects {
			if _, hook := o.GetAnnotations()["helm.sh/hook"]; hook == hooks {
				all = append(all, o)
			}
		}
	}
	return all, nil
}

func decode(text []byte) (objects []*unstructured.Unstructured, err error) {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		err := documents.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		if len(o.Object) > 0 {
			objects = append(objects, &o)
		}
	}
}
