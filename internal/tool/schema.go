package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// A schema has to be one that every provider takes, or a conversation that falls
// back to another provider would break in the middle. So beyond being a valid
// JSON Schema (any draft, 2020-12 by default) it has to keep these rules:
//
//   - the root describes an object;
//   - every property name matches ^[a-zA-Z0-9_.-]{1,64}$;
//   - an array says what its items are;
//   - a $ref points into the same schema; nothing is ever loaded;
//   - anyOf, oneOf and allOf at the root only over plain object schemas. The model
//     is then shown the union of their properties, while inputs are checked
//     against the schema as it was written.
const (
	maxSchema      = 128 << 10 // bytes
	maxSchemaDepth = 32
	schemaURL      = "ombud:///input" // a name for the compiler; nothing is there
)

var propertyName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// schema is an input schema ready for use.
type schema struct {
	source   []byte // canonical, as written
	forModel []byte // canonical, as a provider takes it
	compiled *jsonschema.Schema
}

func newSchema(raw json.RawMessage) (schema, error) {
	if len(raw) > maxSchema {
		return schema{}, fmt.Errorf("input schema: %d bytes, at most %d", len(raw), maxSchema)
	}
	source, err := Canonical(raw)
	if err != nil {
		return schema{}, fmt.Errorf("input schema: %w", err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(source))
	if err != nil {
		return schema{}, fmt.Errorf("input schema: %w", err)
	}
	root, ok := doc.(map[string]any)
	if !ok {
		return schema{}, errors.New("input schema: the root must be an object schema")
	}
	if err := checkRoot(root); err != nil {
		return schema{}, fmt.Errorf("input schema: %w", err)
	}
	if err := checkNode(root, "", 0); err != nil {
		return schema{}, fmt.Errorf("input schema: %w", err)
	}
	compiled, err := compile(root)
	if err != nil {
		return schema{}, fmt.Errorf("input schema: %w", err)
	}
	forModel, err := modelForm(root)
	if err != nil {
		return schema{}, fmt.Errorf("input schema: %w", err)
	}
	return schema{source: source, forModel: forModel, compiled: compiled}, nil
}

// compile never loads anything and turns a panic of the compiler into an error:
// a foreign schema must not end the daemon.
func compile(root map[string]any) (s *jsonschema.Schema, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the schema compiler gave up: %v", p)
		}
	}()
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(schemaURL, root); err != nil {
		return nil, oneLine(err)
	}
	s, err = c.Compile(schemaURL)
	if err != nil {
		return nil, oneLine(err)
	}
	return s, nil
}

type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("%s is outside the schema and nothing is loaded", url)
}

func oneLine(err error) error {
	if v, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return errors.New(joinProblems(problemsOf(v)))
	}
	return errors.New(cut(strings.Join(strings.Fields(err.Error()), " "), 300))
}

var combinators = []string{"allOf", "anyOf", "oneOf"}

func checkRoot(root map[string]any) error {
	kind, given := root["type"]
	if given && kind != "object" {
		return fmt.Errorf("the root has type %v, must be object", kind)
	}
	if _, ref := root["$ref"]; ref {
		return errors.New("the root is a $ref, must be an object schema of its own")
	}
	for _, key := range combinators {
		if err := checkBranches(root, key); err != nil {
			return err
		}
	}
	return nil
}

// checkBranches accepts a combinator at the root only if modelForm can show it.
func checkBranches(root map[string]any, key string) error {
	branches, _ := root[key].([]any)
	for i, b := range branches {
		branch, ok := b.(map[string]any)
		if !ok {
			return fmt.Errorf("/%s/%d is not an object schema", key, i)
		}
		if kind, given := branch["type"]; given && kind != "object" {
			return fmt.Errorf("/%s/%d has type %v, must be object", key, i, kind)
		}
		for _, no := range append([]string{"$ref"}, combinators...) {
			if _, has := branch[no]; has {
				return fmt.Errorf("/%s/%d uses %s, which no provider takes so close to the root", key, i, no)
			}
		}
	}
	return nil
}

// Where schemas stand inside a schema: under one key, in a list, by name.
var (
	oneSchema = []string{
		"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items",
		"not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
	}
	listOfSchemas   = []string{"allOf", "anyOf", "oneOf", "prefixItems", "items"}
	schemasByName   = []string{"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"}
	subschemaIsName = "properties" // the map whose keys a provider sees as names
)

func checkNode(node any, at string, depth int) error {
	obj, ok := node.(map[string]any)
	if !ok {
		return nil // true, false, or what the compiler will refuse
	}
	if depth > maxSchemaDepth {
		return fmt.Errorf("%s: nested more than %d deep", at, maxSchemaDepth)
	}
	if err := checkKeywords(obj, at); err != nil {
		return err
	}
	for at, sub := range subschemas(obj, at) {
		if err := checkNode(sub, at, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func checkKeywords(obj map[string]any, at string) error {
	if props, ok := obj[subschemaIsName].(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(props)) {
			if !propertyName.MatchString(name) {
				return fmt.Errorf("%s/properties: property name %q must match %s", at, cut(name, 80), propertyName)
			}
		}
	}
	if _, hasItems := obj["items"]; !hasItems && hasType(obj["type"], "array") {
		return fmt.Errorf("%s: type array without items", at)
	}
	for _, key := range []string{"$ref", "$dynamicRef"} {
		if ref, ok := obj[key].(string); ok && !strings.HasPrefix(ref, "#") {
			return fmt.Errorf("%s/%s: %q leaves the schema", at, key, cut(ref, 80))
		}
	}
	return nil
}

func hasType(kind any, want string) bool {
	if list, ok := kind.([]any); ok {
		return slices.Contains(list, any(want))
	}
	return kind == want
}

func subschemas(obj map[string]any, at string) map[string]any {
	out := map[string]any{}
	for _, key := range oneSchema {
		if sub, ok := obj[key]; ok {
			out[at+"/"+key] = sub
		}
	}
	for _, key := range listOfSchemas {
		list, _ := obj[key].([]any)
		for i, sub := range list {
			out[fmt.Sprintf("%s/%s/%d", at, key, i)] = sub
		}
	}
	for _, key := range schemasByName {
		named, _ := obj[key].(map[string]any)
		for name, sub := range named {
			out[at+"/"+key+"/"+escapePointer(name)] = sub
		}
	}
	return out
}

// modelForm returns the schema a model is shown: the root as written, but
// certainly of type object and without combinators. The properties of their
// branches join the root's; the first to name a property describes it.
func modelForm(root map[string]any) ([]byte, error) {
	out := maps.Clone(root)
	out["type"] = "object"
	props := map[string]any{}
	if own, ok := root["properties"].(map[string]any); ok {
		maps.Copy(props, own)
	}
	for _, key := range combinators {
		branches, _ := root[key].([]any)
		for _, b := range branches {
			branch, _ := b.(map[string]any)
			more, _ := branch["properties"].(map[string]any)
			for name, sub := range more {
				if _, taken := props[name]; !taken {
					props[name] = sub
				}
			}
		}
		delete(out, key)
	}
	out["properties"] = props
	raw, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return Canonical(raw)
}

// Problem is one thing wrong with an input.
type Problem struct {
	Pointer string // JSON pointer to the value, "" for the whole input
	Text    string
}

func (p Problem) String() string {
	if p.Pointer == "" {
		return "the input: " + p.Text
	}
	return p.Pointer + ": " + p.Text
}

const maxProblems = 25

// check returns everything that is wrong with a canonical input.
func (s schema) check(input []byte) (problems []Problem) {
	defer func() {
		if p := recover(); p != nil {
			problems = []Problem{{Text: cut(fmt.Sprintf("cannot be checked: %v", p), 200)}}
		}
	}()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(input))
	if err != nil {
		return []Problem{{Text: err.Error()}}
	}
	if _, ok := value.(map[string]any); !ok {
		return []Problem{{Text: "must be a JSON object"}}
	}
	err = s.compiled.Validate(value)
	if err == nil {
		return nil
	}
	v, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []Problem{{Text: cut(err.Error(), 300)}}
	}
	return problemsOf(v)
}

// problemsOf lists the leaves of a validation error, each once, in the order of
// their pointers.
func problemsOf(v *jsonschema.ValidationError) []Problem {
	printer := message.NewPrinter(language.English)
	var out []Problem
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			walk(cause)
		}
		if len(e.Causes) == 0 {
			out = append(out, Problem{pointer(e.InstanceLocation), cut(e.ErrorKind.LocalizedString(printer), 300)})
		}
	}
	walk(v)
	slices.SortStableFunc(out, func(a, b Problem) int {
		return strings.Compare(a.Pointer+"\x00"+a.Text, b.Pointer+"\x00"+b.Text)
	})
	return slices.Compact(out)
}

func joinProblems(problems []Problem) string {
	lines := make([]string, 0, len(problems))
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	if more := len(lines) - maxProblems; more > 0 {
		lines = append(lines[:maxProblems], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}

func pointer(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte('/')
		b.WriteString(cut(escapePointer(t), 80))
	}
	return b.String()
}

func escapePointer(token string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
}
