package mapping

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"

	"github.com/flex2csi/flex2csi/internal/allow"
	"github.com/flex2csi/flex2csi/internal/strict"
)

const (
	// costLimit bounds one expression, in CEL's units: one unit is about a step or ten
	// characters. A typical expression needs some 20 for each option; the kubelet
	// cannot pass more than 128 KiB of options.
	costLimit = 1_000_000
	// memoryLimit bounds its values, in bytes.
	memoryLimit = 8 << 20
)

// Pod is the variable pod.
type Pod struct {
	Name           string `cel:"name"`
	Namespace      string `cel:"namespace"`
	UID            string `cel:"uid"`
	ServiceAccount string `cel:"serviceAccount"`
}

// volumeVariables are those of the expressions of a volume; docs/mapping.md lists them.
func volumeVariables() []cel.EnvOption {
	return []cel.EnvOption{
		ext.NativeTypes(reflect.TypeFor[Pod](), ext.ParseStructTags(true)),
		cel.Variable("options", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("pvName", cel.StringType),
		cel.Variable("fsType", cel.StringType),
		cel.Variable("readOnly", cel.BoolType),
		cel.Variable("accessModes", cel.ListType(cel.StringType)),
		cel.Variable("pod", cel.ObjectType("mapping.Pod")),
	}
}

// newEnv returns variables and the functions of expressions.
func newEnv(variables ...cel.EnvOption) (*cel.Env, error) {
	return cel.NewEnv(append(variables,
		// A map or list of several types is a mistake to report when the file is loaded.
		cel.HomogeneousAggregateLiterals(),
		cel.OptionalTypes(),
		ext.Strings(ext.StringsVersion(5)), // the first version with costs of its functions
		ext.TwoVarComprehensions(),
		cel.Function("splitOptions", cel.Overload("split_options_string", []*cel.Type{cel.StringType}, cel.ListType(cel.StringType), cel.UnaryBinding(splitOptions))),
	)...)
}

func splitOptions(text ref.Val) ref.Val {
	options, err := allow.SplitOptions(string(text.(types.String)))
	if err != nil {
		return types.WrapErr(err)
	}
	return types.DefaultTypeAdapter.NativeToValue(append([]string{}, options...))
}

// program is a compiled expression.
type program struct {
	field  string // as in the file: volume.handle
	source string
	run    cel.Program
}

// compile compiles an expression, and checks its type.
func compile(env *cel.Env, field, source string, want *cel.Type) (*program, error) {
	ast, issues := env.Compile(source)
	if err := issues.Err(); err != nil {
		problem := compileError(issues)
		return nil, errors.New(also(problem, advice(source, problem, want)))
	}
	if got := ast.OutputType(); !fits(want, got) {
		return nil, errors.New(also(fmt.Sprintf("gives %s, want %s", got, want), conversion(got, want)))
	}
	run, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(costLimit), cel.MemoryLimit(memoryLimit))
	if err != nil {
		return nil, fmt.Errorf("%s", oneLine(err.Error())) // such as a constant that is no regular expression
	}
	return &program{field: field, source: source, run: run}, nil
}

// fits accepts the types of the literals [] and {} as well.
func fits(want, got *cel.Type) bool {
	if want.IsExactType(got) {
		return true
	}
	if got.Kind() != want.Kind() || len(got.Parameters()) == 0 {
		return false
	}
	for _, p := range got.Parameters() {
		if p.Kind() != cel.DynType.Kind() && p.Kind() != cel.TypeParamType("T").Kind() {
			return false
		}
	}
	return true
}

// compileError makes one line of the compiler's message.
func compileError(issues *cel.Issues) string {
	const most = 3
	var texts []string
	for i, e := range issues.Errors() {
		if i == most {
			texts = append(texts, fmt.Sprintf("and %d more", len(issues.Errors())-most))
			break
		}
		where := fmt.Sprintf("column %d", e.Location.Column()+1)
		if e.Location.Line() > 1 {
			where = fmt.Sprintf("line %d, %s of the expression", e.Location.Line(), where)
		}
		message := strings.TrimSuffix(oneLine(e.Message), " (in container '')")
		texts = append(texts, fmt.Sprintf("%s (%s)", syntaxError(message), where))
		if strings.HasPrefix(message, "Syntax error: ") {
			break // the next ones follow from it
		}
	}
	return strings.Join(texts, "; ")
}

// also adds advice to a problem.
func also(problem, advice string) string {
	if advice == "" {
		return problem
	}
	return problem + "; " + advice
}

// oneLine removes line breaks and shortens a text.
func oneLine(s string) string {
	const most = 300
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// eval runs a program. Its errors are for operators who may not know CEL.
func (p *program) eval(variables map[string]any) (ref.Val, error) {
	value, _, err := p.run.Eval(variables)
	if err == nil {
		return value, nil
	}
	text := oneLine(err.Error())
	if key, ok := strings.CutPrefix(text, "no such key: "); ok {
		lacks := "the volume has no option"
		if p.field == classField {
			lacks = "the class has no parameter"
		}
		return nil, fmt.Errorf("%s %q, which %s wants", lacks, strict.Clip(key), p)
	}
	if strings.HasPrefix(text, "no such attribute") && strings.HasSuffix(text, ": pod") {
		return nil, fmt.Errorf("%s uses the pod, which the kubelet tells in mount only", p)
	}
	if strings.Contains(text, "limit exceeded") {
		return nil, fmt.Errorf("%s takes more time or memory than it may for these options: %s", p, text)
	}
	return nil, fmt.Errorf("%s: %s", p, text)
}

// String returns the field, and the expression if it is short.
func (p *program) String() string {
	return fmt.Sprintf("%s (%s)", p.field, strict.Clip(oneLine(p.source)))
}

// native converts the value of a program.
func native[T any](p *program, value ref.Val) (T, error) {
	var zero T
	converted, err := value.ConvertToNative(reflect.TypeFor[T]())
	if err != nil {
		return zero, fmt.Errorf("%s gives a value of another type than it should: %s", p, oneLine(err.Error()))
	}
	typed, ok := converted.(T)
	if !ok {
		return zero, fmt.Errorf("%s gives a value of another type than it should", p)
	}
	return typed, nil
}
