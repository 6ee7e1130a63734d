package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// Apply makes the objects of a file, as kubectl create does; and first their
// namespaces.
func (p *Plane) Apply(file string) {
	p.t.Helper()
	text, err := os.ReadFile(file)
	p.check(err)
	for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		p.check(err)
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if err == nil {
			err = p.create(p.t.Context(), object)
		}
		if err != nil {
			p.t.Fatalf("%s: %v", file, err)
		}
	}
}

// create knows the kinds that the project installs.
func (p *Plane) create(ctx context.Context, object runtime.Object) (err error) {
	var o metav1.CreateOptions
	if namespaced, ok := object.(metav1.Object); ok && namespaced.GetNamespace() != "" {
		p.Namespace(namespaced.GetNamespace())
	}
	switch x := object.(type) {
	case *corev1.ServiceAccount:
		_, err = p.admin.CoreV1().ServiceAccounts(x.Namespace).Create(ctx, x, o)
	case *rbacv1.ClusterRole:
		_, err = p.admin.RbacV1().ClusterRoles().Create(ctx, x, o)
	case *rbacv1.ClusterRoleBinding:
		_, err = p.admin.RbacV1().ClusterRoleBindings().Create(ctx, x, o)
	case *rbacv1.Role:
		_, err = p.admin.RbacV1().Roles(x.Namespace).Create(ctx, x, o)
	case *rbacv1.RoleBinding:
		_, err = p.admin.RbacV1().RoleBindings(x.Namespace).Create(ctx, x, o)
	case *admissionv1.ValidatingAdmissionPolicy:
		_, err = p.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, x, o)
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		_, err = p.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, x, o)
	default:
		err = fmt.Errorf("%T: add it to controlplane.Apply", object)
	}
	return err
}
