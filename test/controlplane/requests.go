package controlplane

import (
	"bytes"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Request is one to the API server in the words of RBAC.
type Request struct {
	Verb, Resource string
	// Name is the object's; empty for those of many, and where it is in the body.
	Name   string
	DryRun bool
}

func (r Request) String() string { return r.Verb + " " + r.Resource }

// Changes reports whether it may change what is stored, apart from Events.
func (r Request) Changes() bool {
	switch r.Verb {
	case "get", "list", "watch":
		return false
	}
	return !r.DryRun && r.Resource != "events" && !strings.HasSuffix(r.Resource, "accessreviews")
}

// parse reads /api/v1/namespaces/NS/RESOURCE/NAME/SUBRESOURCE and
// /apis/GROUP/VERSION/…; the resource of anything else is empty.
func parse(r *http.Request) Request {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return Request{Verb: strings.ToLower(r.Method)}
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	resource := parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	request := Request{Verb: verb(r, len(parts) > 1), Resource: resource, DryRun: dryRun(r)}
	if len(parts) > 1 {
		request.Name = parts[1]
	}
	return request
}

// dryRun looks into the body as well, where the options of a deletion are.
func dryRun(r *http.Request) bool {
	if r.Method != http.MethodDelete || r.Body == nil {
		return r.URL.Query().Has("dryRun")
	}
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
	return r.URL.Query().Has("dryRun") || bytes.Contains(body, []byte(metav1.DryRunAll))
}

// failing is the end of a body that could not be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

func verb(r *http.Request, named bool) string {
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodGet:
		switch {
		case r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1":
			return "watch"
		case named:
			return "get"
		}
		return "list"
	}
	return strings.ToLower(r.Method) // patch, delete
}
