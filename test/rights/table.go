package rights

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Document is docs/rbac.md, below the repository's root.
const Document = "docs/rbac.md"

// Table reads the rights in the table below a heading of docs/rbac.md. A row has one or
// several verbs: "get, update leases.coordination.k8s.io/name -n namespace". Each right
// that it returns has one, as kubectl auth can-i takes it.
func Table(document, heading string) ([]string, error) {
	text, err := os.ReadFile(document)
	if err != nil {
		return nil, err
	}
	_, section, ok := strings.Cut(string(text), "\n"+heading+"\n")
	if !ok {
		return nil, fmt.Errorf("%s has no heading %q", document, heading)
	}
	if end := regexp.MustCompile(`(?m)^#+ `).FindStringIndex(section); end != nil {
		section = section[:end[0]]
	}
	var all []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		verbs := strings.Split(row[1], ", ")
		last, object, _ := strings.Cut(verbs[len(verbs)-1], " ")
		verbs[len(verbs)-1] = last
		for _, verb := range verbs {
			all = append(all, verb+" "+object)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no rights below %q", document, heading)
	}
	slices.Sort(all)
	return all, nil
}

// Of are the rights that rules give, in one namespace or, if that is empty, in all.
func Of(namespace string, rules ...rbacv1.PolicyRule) []string {
	var all []string
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, url := range rule.NonResourceURLs {
				all = append(all, verb+" "+url)
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range namesOf(rule) {
						all = append(all, right(verb, group, resource, name, namespace))
					}
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

// namesOf are the names that a rule is confined to; an empty one if it is not.
func namesOf(rule rbacv1.PolicyRule) []string {
	if len(rule.ResourceNames) == 0 {
		return []string{""}
	}
	return rule.ResourceNames
}

func right(verb, group, resource, name, namespace string) string {
	resource, sub, _ := strings.Cut(resource, "/")
	text := verb + " " + resource
	if group != "" {
		text += "." + group
	}
	if name != "" {
		text += "/" + name
	}
	if sub != "" {
		text += " --subresource=" + sub
	}
	if namespace != "" {
		text += " -n " + namespace
	}
	return text
}
