// Package clusterview is what internal/migrate says to the API server and hears of it.
package clusterview

// A Resource is a kind of objects as the paths of the API have it.
type Resource struct {
	Group   string // empty: the core group
	Version string
	Name    string // in the plural, as in paths
}

// Path is where objects of the resource are; a namespace may be empty.
func (r Resource) Path(namespace string) string {
	path := "/apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		path = "/api/" + r.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + r.Name
}

// An Access is something that a user may or may not do.
type Access struct {
	Verb, Group string
	// Resource may be one of another: pods/eviction.
	Resource  string
	Namespace string // empty: all, or there are none
	Name      string // empty: any
}

// String is for people: get secrets in default.
func (a Access) String() string {
	text := a.Verb + " " + a.Resource
	if a.Group != "" {
		text += "." + a.Group
	}
	if a.Name != "" {
		text += "/" + a.Name
	}
	if a.Namespace != "" {
		text += " in " + a.Namespace
	}
	return text
}

// Selector says which objects of a list are wanted; all conditions hold.
type Selector struct {
	Namespace string // empty: of all
	Labels    string // as kubectl --selector
	Fields    string
}
