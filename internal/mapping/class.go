package mapping

import (
	"strings"

	"cel.dev/cel-go/cel"
)

const classField = "classParameters"

// ClassParameters returns the parameters of the CSI StorageClass in place of one with the
// parameters old. The expression has these by their names in lower case: many provisioners
// do not mind the case.
func ClassParameters(expression string, old map[string]string) (map[string]string, error) {
	p, err := compileClass(expression)
	if err != nil || p == nil {
		return nil, err
	}
	lower := map[string]string{}
	for key, value := range old {
		lower[strings.ToLower(key)] = value
	}
	var parameters map[string]string
	err = result(p, map[string]any{"parameters": lower}, &parameters)
	return parameters, err
}

// compileClass returns nil for no expression.
func compileClass(expression string) (*program, error) {
	if strings.TrimSpace(expression) == "" {
		return nil, nil
	}
	texts := cel.MapType(cel.StringType, cel.StringType)
	env, err := newEnv(cel.Variable("parameters", texts))
	if err != nil {
		return nil, err
	}
	return compile(env, classField, expression, texts)
}
