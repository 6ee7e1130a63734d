package controlplane

import (
	"os"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/flex2csi/flex2csi/test/parts"
)

// Tokens of users that are always there.
const (
	// Admin may do everything.
	Admin = "admin-token"

	controllerManager = "controller-manager-token"
	attacher          = "attacher-token"
	attacherUser      = "csi-attacher"
)

// users are the lines of the token file after the token: name, UID, groups.
func users() map[string]string {
	return map[string]string{
		Admin:             `admin,1,"system:masters"`,
		controllerManager: `system:kube-controller-manager,2,"system:authenticated"`,
		attacher:          attacherUser + `,3,"system:authenticated"`,
	}
}

// at is the API server at an address, for a user's token.
func (p *Plane) at(address, token string) parts.API {
	return parts.API{Address: address, Token: token, Cert: p.cert.Cert}
}

// Client returns a client of the user of a token.
func (p *Plane) Client(token string) kubernetes.Interface {
	p.t.Helper()
	c, err := kubernetes.NewForConfig(p.at(p.api, token).Config())
	p.check(err)
	return c
}

// Kubeconfig writes a kubeconfig for the user of a token.
func (p *Plane) Kubeconfig(token string) string {
	p.t.Helper()
	return p.kubeconfig(p.api, token)
}

func (p *Plane) kubeconfig(address, token string) string {
	p.t.Helper()
	f, err := os.CreateTemp(p.dir, "kubeconfig-") // mode 0600
	p.check(err)
	defer f.Close()
	_, err = f.Write(p.at(address, token).Kubeconfig())
	p.check(err)
	return f.Name()
}

// ServiceAccount makes one, if it is not there.
func (p *Plane) ServiceAccount(namespace, name string) {
	p.t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := p.admin.CoreV1().ServiceAccounts(namespace).Create(p.t.Context(), sa, metav1.CreateOptions{})
	p.checkMade(err)
}

// ServiceAccountToken is the token that a kubelet gives to a container of the
// pod: it names the pod and its node.
func (p *Plane) ServiceAccountToken(pod *corev1.Pod) string {
	p.t.Helper()
	seconds := int64(3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	token, err := p.admin.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(p.t.Context(), pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	p.check(err)
	return token.Status.Token
}

// makeAttacherRole gives the external-attacher what its own manifest does
// (kubernetes-csi/external-attacher v4.12.0, deploy/kubernetes/rbac.yaml).
func (p *Plane) makeAttacherRole() {
	p.t.Helper()
	read := []string{"get", "list", "watch"}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: attacherUser}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: append(read, "patch")},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"csinodes"}, Verbs: read},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments"}, Verbs: append(read, "patch")},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments/status"}, Verbs: []string{"patch"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}, // controllerPublishSecretRef
	}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: attacherUser},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: attacherUser},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: attacherUser}},
	}
	_, err := p.admin.RbacV1().ClusterRoles().Create(p.t.Context(), role, metav1.CreateOptions{})
	p.check(err)
	_, err = p.admin.RbacV1().ClusterRoleBindings().Create(p.t.Context(), binding, metav1.CreateOptions{})
	p.check(err)
}
