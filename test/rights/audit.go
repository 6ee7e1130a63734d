package rights

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// AuditPolicy has the API server write down who has asked for what, of the
// ServiceAccounts in the namespace flex2csi.
const AuditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts:flex2csi"]
  - level: None
`

// AuditArgs are those of kube-apiserver.
func AuditArgs(policy, log string) []string {
	// Blocking writes each event before the request is answered. Of a log that is rotated, at
	// 100 MB without a size, nothing looks at the older part.
	return []string{"--audit-policy-file", policy, "--audit-log-path", log, "--audit-log-mode", "blocking", "--audit-log-maxsize", "10000"}
}

// An Audit is what the ServiceAccounts of flex2csi have asked for, by their names.
type Audit struct {
	// Used are requests for which there was a right.
	Used map[string][]Use
	// Forbidden are requests for which there was none.
	Forbidden map[string][]Use
}

// A Use is a request, or some that differ in nothing that RBAC knows.
type Use struct {
	Verb, Group, Resource, Namespace, Name string
	Times                                  int
}

func (u Use) String() string {
	return fmt.Sprintf("%s (%d times)", right(u.Verb, u.Group, u.Resource, u.Name, u.Namespace), u.Times)
}

// event is the part of an audit event that matters (audit.k8s.io/v1).
type event struct {
	Verb        string `json:"verb"`
	User        struct{ Username string }
	ObjectRef   *objectRef        `json:"objectRef"`
	Annotations map[string]string `json:"annotations"`
}

type objectRef struct {
	APIGroup, Resource, Subresource, Namespace, Name string
}

// ReadAudit reads an audit log. The last line may still be being written, and an API
// server that is killed leaves half a line, to which its successor appends.
func ReadAudit(file string) (*Audit, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	used, forbidden := map[string]map[Use]int{}, map[string]map[Use]int{}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return &Audit{Used: counted(used), Forbidden: counted(forbidden)}, nil
		}
		if err != nil {
			return nil, err
		}
		e, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		to := used
		if e.Annotations["authorization.k8s.io/decision"] == "forbid" {
			to = forbidden
		}
		e.count(to)
	}
}

// parse reads the event that a line ends with.
func parse(line []byte) (e event, err error) {
	if json.Unmarshal(line, &e) == nil {
		return e, nil
	}
	e = event{}
	whole := line[max(0, bytes.LastIndex(line, []byte(`{"kind":"Event"`))):]
	err = json.Unmarshal(whole, &e)
	return e, err
}

// count adds a request for a resource.
func (e *event) count(to map[string]map[Use]int) {
	account := strings.TrimPrefix(e.User.Username, "system:serviceaccount:flex2csi:")
	if e.ObjectRef == nil || account == e.User.Username {
		return
	}
	o := e.ObjectRef
	u := Use{Verb: e.Verb, Group: o.APIGroup, Resource: o.Resource, Namespace: o.Namespace, Name: o.Name}
	if o.Subresource != "" {
		u.Resource += "/" + o.Subresource
	}
	if to[account] == nil {
		to[account] = map[Use]int{}
	}
	to[account][u]++
}

func counted(of map[string]map[Use]int) map[string][]Use {
	all := map[string][]Use{}
	for account, uses := range of {
		for u, times := range uses {
			u.Times = times
			all[account] = append(all[account], u)
		}
		slices.SortFunc(all[account], func(a, b Use) int { return strings.Compare(a.String(), b.String()) })
	}
	return all
}

// Beyond are the rights that an account lacked for a request and that are not among
// those that it is meant to have. Of these, roles may have been away for a moment.
func (a *Audit) Beyond(account string, meant []string) []string {
	all := map[string]bool{}
	for _, u := range a.Forbidden[account] {
		if !slices.ContainsFunc(u.rights(), func(right string) bool { return slices.Contains(meant, right) }) {
			all[right(u.Verb, u.Group, u.Resource, "", u.Namespace)] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Unused are the rights that no request of an account has used.
func (a *Audit) Unused(account string, rights []string) []string {
	left := map[string]bool{}
	for _, r := range rights {
		left[r] = true
	}
	for _, u := range a.Used[account] {
		for _, right := range u.rights() {
			delete(left, right)
		}
	}
	return slices.Sorted(maps.Keys(left))
}

// rights are those of which each allows the request.
func (u Use) rights() (all []string) {
	for _, name := range []string{"", u.Name} {
		for _, namespace := range []string{"", u.Namespace} {
			all = append(all, right(u.Verb, u.Group, u.Resource, name, namespace))
		}
	}
	return all
}
