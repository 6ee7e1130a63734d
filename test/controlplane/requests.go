package controlplane

import (
	"net/http"
	"strings"
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
	request := Request{Verb: verb(r, len(parts) > 1), Resource: resource, DryRun: r.URL.Query().Has("dryRun")}
	if len(parts) > 1 {
		request.Name = parts[1]
	}
	return request
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
