package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Values reads a file of values.
func Values(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return values, nil
}

// Variants are the values of the file base, each time with one of the file different in its
// place, for each value that the chart's schema has. The keys are their paths.
func Variants(chart, base, different string) (map[string]map[string]any, error) {
	others, err := Values(different)
	if err != nil {
		return nil, err
	}
	paths, err := leaves(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		return nil, err
	}
	all := map[string]map[string]any{}
	for _, path := range paths {
		value, found, err := unstructured.NestedFieldCopy(others, path...)
		if !found {
			return nil, fmt.Errorf("%s has no %s: %w", different, strings.Join(path, "."), err)
		}
		values, err := Values(base)
		if err != nil {
			return nil, err
		}
		if err := unstructured.SetNestedField(values, value, path...); err != nil {
			return nil, err
		}
		all[strings.Join(path, ".")] = values
	}
	return all, nil
}

// leaves are the paths of all values of a schema that can have another value. What is in a
// list, and in a map that may have any keys, belongs to it.
func leaves(file string) ([][]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	type node struct {
		Ref        string `json:"$ref"`
		Const      any
		Properties map[string]*node
	}
	var schema struct {
		node
		Definitions map[string]*node
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var all [][]string
	var walk func(n *node, path []string)
	walk = func(n *node, path []string) {
		if definition, ok := schema.Definitions[strings.TrimPrefix(n.Ref, "#/definitions/")]; ok {
			n = definition
		}
		if len(n.Properties) == 0 && n.Const == nil {
			all = append(all, path)
		}
		for _, name := range slices.Sorted(maps.Keys(n.Properties)) {
			walk(n.Properties[name], append(slices.Clone(path), name))
		}
	}
	delete(schema.Properties, "global") // which is Helm's
	walk(&schema.node, nil)
	return all, nil
}
