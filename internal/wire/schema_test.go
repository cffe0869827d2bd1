package wire

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

var update = flag.Bool("update", false, "write docs/ipc-schema.json from the Go types")

const schemaFile = "../../docs/ipc-schema.json"

// The published schema: what a client in another language is written from.
type (
	schemaDoc struct {
		Protocol string                 `json:"protocol"`
		Frame    string                 `json:"frame"`
		Units    string                 `json:"units"`
		Methods  []schemaMethod         `json:"methods"`
		Agent    []schemaMethod         `json:"agent_methods"`
		Errors   []schemaError          `json:"errors"`
		Defs     map[string]*schemaType `json:"$defs"`
	}
	schemaMethod struct {
		Name       string      `json:"name"`
		Doc        string      `json:"doc"`
		Repeatable bool        `json:"repeatable"`
		Params     *schemaType `json:"params"`
		Notes      schemaNotes `json:"notes,omitempty"`
		Result     *schemaType `json:"result"`
	}
	schemaNotes map[string]*schemaType
	schemaError struct {
		Class fault.Class `json:"class"`
		Code  int         `json:"code"`
	}
	schemaType struct {
		Ref         string                 `json:"$ref,omitempty"`
		Type        string                 `json:"type,omitempty"`
		Description string                 `json:"description,omitempty"`
		Properties  map[string]*schemaType `json:"properties,omitempty"`
		Required    []string               `json:"required,omitempty"`
		Items       *schemaType            `json:"items,omitempty"`
		Strict      *bool                  `json:"additionalProperties,omitempty"`
	}
)

func TestSchemaIsThePublishedOne(t *testing.T) {
	t.Parallel()
	got := buildSchema(t)
	if *update {
		if err := os.MkdirAll(filepath.Dir(schemaFile), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(schemaFile, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/ipc-schema.json is not what the Go types say; run: go test ./internal/wire -run TestSchema -update")
	}
}

func TestEveryFieldIsDocumentedOrNamesItself(t *testing.T) {
	t.Parallel()
	comments := readComments(t)
	seen := map[reflect.Type]bool{}
	var visit func(reflect.Type)
	visit = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		if comments[typ.Name()] == "" {
			t.Errorf("%s has no comment", typ.Name())
		}
		for _, f := range fieldsOf(typ) {
			doc := comments[typ.Name()+"."+f.goName]
			isTime := f.name == "at" || strings.HasSuffix(f.name, "_at")
			if isTime && f.typ.Kind() != reflect.Int64 || isTime && !strings.Contains(doc, "Unix µs") {
				t.Errorf("%s.%s: a time is an int64 documented in Unix µs, got %s %q", typ.Name(), f.name, f.typ, doc)
			}
			if strings.HasSuffix(f.name, "_us") && !strings.Contains(doc, "µs") {
				t.Errorf("%s.%s: a duration is documented in µs, got %q", typ.Name(), f.name, doc)
			}
			if f.typ.Kind() == reflect.Map || f.typ.Kind() == reflect.Interface {
				t.Errorf("%s.%s: %s has no schema", typ.Name(), f.name, f.typ)
			}
			visit(f.typ)
		}
	}
	for _, m := range append(Methods(), AgentMethods()...) {
		visit(m.Params)
		visit(m.Result)
		for _, n := range m.Notes {
			visit(n.Type)
		}
	}
}

// Descriptors that are declared but not listed would have no schema and no
// handler; methods that are listed but not on the client could not be called.
func TestEveryDescriptorIsListedAndCallable(t *testing.T) {
	t.Parallel()
	for file, set := range map[string]struct {
		methods []Method
		client  reflect.Type
		shared  int // declared in another file
	}{
		"methods.go":       {Methods(), reflect.TypeFor[*Client](), 0},
		"methods_agent.go": {AgentMethods(), reflect.TypeFor[*AgentClient](), 1},
	} {
		names, builtins := map[string]bool{}, 0
		for _, m := range set.methods {
			if names[m.Name] {
				t.Errorf("%s is listed twice", m.Name)
			}
			names[m.Name] = true
			if m.Builtin {
				builtins++
			}
		}
		if declared := descriptors(t, file); declared+set.shared != len(names) {
			t.Errorf("%s: %d descriptors, %d of them listed", file, declared, len(names)-set.shared)
		}
		if got := set.client.NumMethod(); got != len(names)-builtins {
			t.Errorf("%s: client has %d calls for %d methods", file, got, len(names)-builtins)
		}
	}
}

// What jobs and adapters can call and what the operator can call have nothing in
// common but to give up a request.
func TestTheTwoSocketsShareNoMethod(t *testing.T) {
	t.Parallel()
	operator := map[string]bool{}
	for _, m := range Methods() {
		operator[m.Name] = !m.Builtin
	}
	for _, m := range AgentMethods() {
		if operator[m.Name] {
			t.Errorf("%s is on both", m.Name)
		}
	}
}

func descriptors(t *testing.T, name string) (n int) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		if g, ok := decl.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, spec := range g.Specs {
				n += len(spec.(*ast.ValueSpec).Names)
			}
		}
	}
	return n
}

func buildSchema(t *testing.T) []byte {
	t.Helper()
	doc := schemaDoc{
		Protocol: "ombud.ipc.v1",
		Frame:    "4-byte big-endian length, then that many bytes of UTF-8 JSON (at most 16777216): one JSON-RPC 2.0 request, response or notification; no batches. A note is a notification whose params are {\"request\": id, \"note\": {…}}.",
		Units:    "at, *_at: Unix microseconds; *_us: microseconds; *_s: seconds; *_microusd: millionths of a US dollar.",
		Defs:     map[string]*schemaType{},
	}
	for _, row := range fault.Codes() {
		doc.Errors = append(doc.Errors, schemaError{row.Class, row.IPC})
	}
	gen := generator{defs: doc.Defs, comments: readComments(t), strict: map[string]bool{}}
	for _, m := range append(Methods(), AgentMethods()...) {
		gen.strict[m.Params.Name()] = true
	}
	doc.Methods, doc.Agent = gen.methods(Methods()), gen.methods(AgentMethods())
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(doc); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (g generator) methods(list []Method) (out []schemaMethod) {
	for _, m := range list {
		sm := schemaMethod{Name: m.Name, Doc: m.Doc, Repeatable: m.Repeatable, Params: g.of(m.Params), Result: g.of(m.Result)}
		for _, n := range m.Notes {
			if sm.Notes == nil {
				sm.Notes = schemaNotes{}
			}
			sm.Notes[n.Name] = g.of(n.Type)
		}
		out = append(out, sm)
	}
	return out
}

// generator makes a JSON Schema definition of each struct it meets.
type generator struct {
	defs     map[string]*schemaType
	comments map[string]string // "Type" and "Type.Field" to comment
	strict   map[string]bool   // structs that refuse unknown fields
}

func (g generator) of(t reflect.Type) *schemaType {
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return &schemaType{} // any JSON
	case t.Kind() == reflect.Pointer:
		return g.of(t.Elem())
	case t.Kind() == reflect.Slice:
		return &schemaType{Type: "array", Items: g.of(t.Elem())}
	case t.Kind() == reflect.Struct:
		return g.object(t)
	}
	kinds := map[reflect.Kind]string{
		reflect.String: "string", reflect.Bool: "boolean", reflect.Int: "integer", reflect.Int64: "integer", reflect.Float64: "number",
	}
	return &schemaType{Type: kinds[t.Kind()]}
}

func (g generator) object(t reflect.Type) *schemaType {
	ref := &schemaType{Ref: "#/$defs/" + t.Name()}
	if g.defs[t.Name()] != nil {
		return ref
	}
	def := &schemaType{Type: "object", Description: g.comments[t.Name()], Properties: map[string]*schemaType{}}
	g.defs[t.Name()] = def
	if g.strict[t.Name()] {
		def.Strict = new(bool)
	}
	for _, f := range fieldsOf(t) {
		prop := g.of(f.typ)
		prop.Description = g.comments[t.Name()+"."+f.goName]
		def.Properties[f.name] = prop
		if f.required {
			def.Required = append(def.Required, f.name)
		}
	}
	return ref
}

// readComments reads the comments of all struct types of this package.
func readComments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("types_*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	out := map[string]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.TYPE {
				continue
			}
			for _, spec := range gen.Specs {
				typ := spec.(*ast.TypeSpec)
				out[typ.Name.Name] = oneLine(gen.Doc.Text())
				if s, ok := typ.Type.(*ast.StructType); ok {
					for _, f := range s.Fields.List {
						for _, n := range f.Names {
							out[typ.Name.Name+"."+n.Name] = oneLine(f.Comment.Text())
						}
					}
				}
			}
		}
	}
	return out
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
