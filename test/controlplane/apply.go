package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Apply makes the objects in files of YAML, as kubectl create would, and first
// their namespaces. What is there already stays as it is.
func (p *Plane) Apply(files ...string) {
	p.t.Helper()
	for _, file := range files {
		f, err := os.Open(file)
		p.check(err)
		defer f.Close()
		documents := yaml.NewYAMLOrJSONDecoder(f, 4096)
		for {
			var o unstructured.Unstructured
			err := documents.Decode(&o)
			if errors.Is(err, io.EOF) {
				break
			}
			p.check(err)
			if len(o.Object) > 0 {
				p.create(&o)
			}
		}
	}
}

// create posts an object, strictly: a field that is misspelt is an error.
func (p *Plane) create(o *unstructured.Unstructured) {
	p.t.Helper()
	if o.GetNamespace() != "" {
		p.Namespace(o.GetNamespace())
	}
	body, err := json.Marshal(o)
	p.check(err)
	err = p.admin.CoreV1().RESTClient().Post().AbsPath(p.pathOf(o)).
		Param("fieldValidation", metav1.FieldValidationStrict).Body(body).SetHeader("Content-Type", "application/json").
		Do(p.t.Context()).Error()
	if err != nil && !apierrors.IsAlreadyExists(err) {
		p.t.Fatalf("make %s %s: %v", o.GetKind(), o.GetName(), err)
	}
}

// DryRun asks the API server whether it would take an object, strictly, in
// namespaces that are there.
func (p *Plane) DryRun(o *unstructured.Unstructured) error {
	p.t.Helper()
	body, err := json.Marshal(o)
	p.check(err)
	result := p.admin.CoreV1().RESTClient().Post().AbsPath(p.pathOf(o)).
		Param("fieldValidation", metav1.FieldValidationStrict).Param("dryRun", metav1.DryRunAll).
		Body(body).SetHeader("Content-Type", "application/json").Do(p.t.Context())
	if err := result.Error(); err != nil {
		return err
	}
	for _, warning := range result.Warnings() {
		err = errors.Join(err, errors.New(warning.Text))
	}
	return err
}

// Replace puts an object in the place of the one of its name, if there is one.
func (p *Plane) Replace(o *unstructured.Unstructured) error {
	p.t.Helper()
	err := p.admin.CoreV1().RESTClient().Delete().AbsPath(p.pathOf(o), o.GetName()).Do(p.t.Context()).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	body, err := json.Marshal(o)
	p.check(err)
	return p.admin.CoreV1().RESTClient().Post().AbsPath(p.pathOf(o)).
		Param("fieldValidation", metav1.FieldValidationStrict).Body(body).SetHeader("Content-Type", "application/json").
		Do(p.t.Context()).Error()
}

// pathOf is where objects of the same kind are.
func (p *Plane) pathOf(o *unstructured.Unstructured) string {
	p.t.Helper()
	version := o.GetAPIVersion()
	list, err := p.admin.Discovery().ServerResourcesForGroupVersion(version)
	p.check(err)
	path := "/apis/" + version
	if version == "v1" {
		path = "/api/v1"
	}
	for _, r := range list.APIResources {
		if r.Kind != o.GetKind() || len(r.Version)+len(r.Group) > 0 { // the latter are subresources of others
			continue
		}
		if r.Namespaced {
			return fmt.Sprintf("%s/namespaces/%s/%s", path, o.GetNamespace(), r.Name)
		}
		return path + "/" + r.Name
	}
	p.t.Fatalf("there is no kind %s in %s", o.GetKind(), version)
	return ""
}
