package controlplane

import (
	"net/http"
	"strings"
)

// A request is one to the API server in the words of RBAC.
type request struct{ verb, resource string }

func (r request) String() string { return r.verb + " " + r.resource }

// parse reads /api/v1/namespaces/NS/RESOURCE/NAME/SUBRESOURCE and
// /apis/GROUP/VERSION/…; the resource of anything else is empty.
func parse(r *http.Request) request {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return request{verb: strings.ToLower(r.Method)}
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	resource := parts[0]
	if len(parts) > 2 {
		resource += "/" + parts[2]
	}
	return request{verb: verb(r, len(parts) > 1), resource: resource}
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
