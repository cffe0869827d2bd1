package tool

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/scope"
)

func newRegistry() (*Registry, *Invoker) {
	return NewRegistry(slog.New(slog.DiscardHandler))
}

const readSchema = `{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer","minimum":1}},
	"required":["path"],"additionalProperties":false}`

func define(name, input string) Definition {
	return Definition{
		Name: name, Description: "reads", Input: json.RawMessage(input), Kind: Effect, ReadOnly: true, Repeat: Repeatable,
		Timeout: time.Second, MaxOutput: 1 << 10, Source: label.Own,
		Scopes:  func(json.RawMessage) ([]scope.Scope, error) { return nil, errors.New("not asked") },
		Summary: func(json.RawMessage) string { return name },
	}
}

func echo(_ context.Context, in Invocation) (Output, error) {
	return Output{Text: string(in.Input)}, nil
}

func TestBadSchemasAreQuarantinedByNameAndReasonAndTheRestWorks(t *testing.T) {
	t.Parallel()
	r, inv := newRegistry()
	bad := map[string][2]string{
		"root.string":    {`{"type":"string"}`, "the root has type string"},
		"root.list":      {`{"type":["object","null"]}`, "the root has type"},
		"root.array":     {`[]`, "the root must be an object schema"},
		"root.true":      {`true`, "the root must be an object schema"},
		"root.ref":       {`{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}`, "the root is a $ref"},
		"root.anystring": {`{"anyOf":[{"type":"object"},{"type":"string"}]}`, "/anyOf/1 has type string"},
		"root.allref":    {`{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"object"}}}`, "/allOf/0 uses $ref"},
		"key.dollar":     {`{"type":"object","properties":{"$.xgafv":{"type":"string"}}}`, `property name "$.xgafv"`},
		"key.deep":       {`{"type":"object","properties":{"a":{"anyOf":[{"properties":{"å":{}}}]}}}`, "/properties/a/anyOf/0/properties"},
		"array.bare":     {`{"type":"object","properties":{"a":{"type":"array"}}}`, "/properties/a: type array without items"},
		"array.nullable": {`{"type":"object","properties":{"a":{"type":["array","null"]}}}`, "type array without items"},
		"ref.missing":    {`{"type":"object","properties":{"a":{"$ref":"#/$defs/none"}}}`, "none"},
		"ref.file":       {`{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}`, "leaves the schema"},
		"ref.http":       {`{"type":"object","properties":{"a":{"$ref":"http://127.0.0.1:1/x"}}}`, "leaves the schema"},
		"id.tricks":      {`{"$schema":"http://127.0.0.1:1/meta","type":"object"}`, "nothing is loaded"},
		"type.unknown":   {`{"type":"object","properties":{"a":{"type":"strnig"}}}`, "/properties/a"},
		"pattern.bad":    {`{"type":"object","properties":{"a":{"pattern":"("}}}`, "regex"},
		"not.json":       {`{"type":"object"`, "not valid JSON"},
		"twice.a.key":    {`{"type":"object","type":"string"}`, `the key "type" twice`},
		"empty":          {``, "the JSON is empty"},
		"too.deep":       {strings.Repeat(`{"type":"object","properties":{"a":`, 40) + "{}" + strings.Repeat("}}", 40), "nested more than 32"},
	}
	for name, c := range bad {
		if err := r.Add(define(name, c[0]), echo); !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s: Add = %v, want a config error with %q", name, err, c[1])
		}
	}
	if err := r.Add(define("good.one", readSchema), echo); err != nil {
		t.Fatal(err)
	}
	if got := len(r.Quarantined()); got != len(bad) {
		t.Errorf("%d tools are quarantined, want %d", got, len(bad))
	}
	if _, err := r.Get("root_string"); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "the root has type string") {
		t.Errorf("Get of a quarantined tool = %v, want its reason", err)
	}
	out, err := inv.Call(t.Context(), "good.one", Invocation{Input: json.RawMessage(`{}`)})
	if err != nil || out.Text != "{}" {
		t.Errorf("the good tool answers %+v, %v", out, err)
	}
}

func TestCombinatorsAtTheRootAreShownAsAUnionAndCheckedAsWritten(t *testing.T) {
	t.Parallel()
	r, _ := newRegistry()
	either := `{"anyOf":[{"properties":{"id":{"type":"string"}},"required":["id"]},
		{"type":"object","properties":{"name":{"type":"string"},"id":{"type":"integer"}},"required":["name"]}],"properties":{"n":{"type":"integer"}}}`
	if err := r.Add(define("find.it", either), echo); err != nil {
		t.Fatal(err)
	}
	def, err := r.Get("find.it")
	want := `{"properties":{"id":{"type":"string"},"n":{"type":"integer"},"name":{"type":"string"}},"type":"object"}`
	if err != nil || string(def.Input) != want {
		t.Errorf("a model is shown %s, %v, want %s", def.Input, err, want)
	}
	if err := r.Validate("find.it", json.RawMessage(`{"n":1}`)); !fault.Is(err, fault.Invalid) {
		t.Errorf("an input no branch takes: %v", err)
	}
	if err := r.Validate("find.it", json.RawMessage(`{"name":"x","id":3}`)); err != nil {
		t.Errorf("an input the second branch takes: %v", err)
	}
}

func TestValidateReportsEverythingWrongWithItsPointer(t *testing.T) {
	t.Parallel()
	r, _ := newRegistry()
	schema := `{"type":"object","required":["to","body"],"additionalProperties":false,"properties":{
		"to":{"type":"array","items":{"type":"string","minLength":3}},"body":{"type":"string"},
		"opt":{"type":"object","properties":{"a/b":{"type":"integer"}}}}}`
	schema = strings.ReplaceAll(schema, "a/b", "a.b")
	if err := r.Add(define("mail.send", schema), echo); err != nil {
		t.Fatal(err)
	}
	err := r.Validate("mail_send", json.RawMessage(`{"to":["ok@x",1,"a"],"opt":{"a.b":"x"},"bdy":"hello"}`))
	bad, ok := errors.AsType[*InvalidInput](err)
	if !ok || !fault.Is(err, fault.Invalid) {
		t.Fatalf("Validate = %v, want an invalid input", err)
	}
	want := []Problem{
		{"", "additional properties 'bdy' not allowed"},
		{"", "missing property 'body'"},
		{"/opt/a.b", "got string, want integer"},
		{"/to/1", "got number, want string"},
		{"/to/2", "minLength: got 1, want 3"},
	}
	if len(bad.Problems) != len(want) {
		t.Fatalf("problems %q, want %q", bad.Problems, want)
	}
	for i, p := range bad.Problems {
		if p != want[i] {
			t.Errorf("problem %d is %q, want %q", i, p, want[i])
		}
		if !strings.Contains(err.Error(), p.String()) {
			t.Errorf("the error %q leaves out %q", err, p)
		}
	}
}

func TestValidateOfHugeAndStrangeInputsStaysSmall(t *testing.T) {
	t.Parallel()
	r, _ := newRegistry()
	if err := r.Add(define("n.um", `{"type":"object","properties":{"n":{"type":"integer","multipleOf":2}},"additionalProperties":{"type":"boolean","const":true}}`), echo); err != nil {
		t.Fatal(err)
	}
	many := `{"n":1`
	for i := range 2000 {
		many += `,"k` + strings.Repeat("x", i%90) + string(rune('a'+i%26)) + string(rune('0'+i/26%10)) + strings.Repeat("y", i/260) + `":0`
	}
	for _, in := range []string{many + "}", `{"n":1e-999999999}`, `{"n":1e999999999}`, `"text"`, `[]`, `null`, `{"` + strings.Repeat("k", 1<<20) + `":1}`} {
		err := r.Validate("n.um", json.RawMessage(in))
		if !fault.Is(err, fault.Invalid) || len(err.Error()) > 16<<10 {
			t.Errorf("Validate(%.30s) gives %d bytes of class %s", in, len(err.Error()), fault.ClassOf(err))
		}
	}
}

func TestUnknownToolNamesTheNearOnes(t *testing.T) {
	t.Parallel()
	r, _ := newRegistry()
	for _, name := range []string{"fs.read", "fs.write", "fs.list", "web.fetch", "time.now", "memory.recall"} {
		if err := r.Add(define(name, readSchema), echo); err != nil {
			t.Fatal(err)
		}
	}
	for asked, want := range map[string]string{
		"fs_raed": "fs.read", "FS.Read": "fs.read", "read": "fs.read", "fs-list": "fs.list", "webfetch": "web.fetch",
		"memory/recal": "memory.recall", "functions.fs.write": "fs.write",
	} {
		_, err := r.Get(asked)
		if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), want) {
			t.Errorf("Get(%s) = %v, want it to name %s", asked, err, want)
		}
	}
	for _, asked := range []string{"launch_the_missiles", strings.Repeat("fs.read", 1<<16)} {
		if _, err := r.Get(asked); strings.Contains(err.Error(), "did you mean") || len(err.Error()) > 300 {
			t.Errorf("Get(%.20s) = %.400v", asked, err)
		}
	}
	if def, err := r.Get("fs_read"); err != nil || def.Name != "fs.read" {
		t.Errorf("Get by model name = %s, %v", def.Name, err)
	}
}

func TestNamesAModelCannotTellApartAreOneName(t *testing.T) {
	t.Parallel()
	r, _ := newRegistry()
	if err := r.Add(define("a.b_c", readSchema), echo); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.b_c", "a_b.c", "a.b.c"} {
		if err := r.Add(define(name, readSchema), echo); err == nil || !strings.Contains(err.Error(), "taken by a.b_c") {
			t.Errorf("Add(%s) = %v, want the name taken", name, err)
		}
	}
	if len(r.List()) != 1 {
		t.Errorf("List = %d tools, want 1", len(r.List()))
	}
}

func TestDefinitionsThatDoNotFitTogetherAreQuarantined(t *testing.T) {
	t.Parallel()
	probe := func(context.Context, Invocation) (ProbeResult, error) { return ProbeResult{}, nil }
	for what, change := range map[string]func(*Definition){
		"no description":        func(d *Definition) { d.Description = " " },
		"bad name":              func(d *Definition) { d.Name = "fs read" },
		"dot at the end":        func(d *Definition) { d.Name = "fs." },
		"long name":             func(d *Definition) { d.Name = strings.Repeat("x", 65) },
		"unknown kind":          func(d *Definition) { d.Kind = "remote" },
		"unknown repeat":        func(d *Definition) { d.Repeat = "often" },
		"probed without probe":  func(d *Definition) { d.Repeat = Probed },
		"probe without probed":  func(d *Definition) { d.Probe = probe },
		"read-only and final":   func(d *Definition) { d.Irreversible = true },
		"no timeout":            func(d *Definition) { d.Timeout = 0 },
		"no output limit":       func(d *Definition) { d.MaxOutput = 0 },
		"no source":             func(d *Definition) { d.Source = "" },
		"no scopes":             func(d *Definition) { d.Scopes = nil },
		"no summary for people": func(d *Definition) { d.Summary = nil },
	} {
		r, _ := newRegistry()
		def := define("fs.read", readSchema)
		change(&def)
		if err := r.Add(def, echo); !fault.Is(err, fault.Config) || len(r.Quarantined()) != 1 || len(r.List()) != 0 {
			t.Errorf("%s: Add = %v", what, err)
		}
	}
	r, _ := newRegistry()
	if err := r.Add(define("fs.read", readSchema), nil); !fault.Is(err, fault.Config) {
		t.Errorf("without a handler: Add = %v", err)
	}
}

func TestDigestChangesWithWhatWasApprovedAndWithNothingElse(t *testing.T) {
	t.Parallel()
	digest := func(change func(*Definition)) string {
		r, _ := newRegistry()
		def := define("fs.read", readSchema)
		change(&def)
		if err := r.Add(def, echo); err != nil {
			t.Fatal(err)
		}
		return r.Digest(def.Name)
	}
	base := digest(func(*Definition) {})
	if len(base) != 64 {
		t.Fatalf("digest %q is not a SHA-256", base)
	}
	same := digest(func(d *Definition) {
		d.Input = json.RawMessage(strings.ReplaceAll(readSchema, ":", " : "))
		d.Timeout = time.Hour
	})
	if same != base {
		t.Error("white space or a timeout changed the digest")
	}
	for what, change := range map[string]func(*Definition){
		"description": func(d *Definition) { d.Description = "reads and sends" },
		"schema":      func(d *Definition) { d.Input = json.RawMessage(strings.Replace(readSchema, "1", "2", 1)) },
		"read-only":   func(d *Definition) { d.ReadOnly = false },
		"repeat":      func(d *Definition) { d.Repeat = AtMostOnce },
	} {
		if digest(change) == base {
			t.Errorf("another %s left the digest as it was", what)
		}
	}
}

func TestTheRegistryHandsOutNoHandlerAndNoProbe(t *testing.T) {
	t.Parallel()
	r, inv := newRegistry()
	def := define("fs.write", readSchema)
	def.ReadOnly, def.Repeat = false, Probed
	def.Probe = func(context.Context, Invocation) (ProbeResult, error) { return ProbeResult{State: Done}, nil }
	if err := r.Add(def, echo); err != nil {
		t.Fatal(err)
	}
	got, err := r.Get("fs.write")
	if err != nil || got.Probe != nil || r.List()[0].Probe != nil {
		t.Fatalf("Get = %v, a probe got out", err)
	}
	if res, err := inv.Probe(t.Context(), "fs.write", Invocation{}); err != nil || res.State != Done {
		t.Fatalf("Probe = %+v, %v", res, err)
	}
}

func TestInvokerTurnsPanicsIntoTheClassThatIsTrue(t *testing.T) {
	t.Parallel()
	r, inv := newRegistry()
	writes := define("a.write", readSchema)
	writes.ReadOnly, writes.Repeat = false, Probed
	writes.Probe = func(context.Context, Invocation) (ProbeResult, error) { panic("probe") }
	boom := func(context.Context, Invocation) (Output, error) { panic("boom") }
	if err := errors.Join(r.Add(writes, boom), r.Add(define("a.read", readSchema), boom)); err != nil {
		t.Fatal(err)
	}
	if _, err := inv.Call(t.Context(), "a.write", Invocation{}); !fault.Is(err, fault.Unknown) {
		t.Errorf("a write that panicked: %v, want unknown", err)
	}
	if _, err := inv.Call(t.Context(), "a.read", Invocation{}); !fault.Is(err, fault.Internal) {
		t.Errorf("a read that panicked: %v, want internal", err)
	}
	if res, err := inv.Probe(t.Context(), "a.write", Invocation{}); err == nil || res.State != Unclear {
		t.Errorf("a probe that panicked: %+v, %v, want unclear", res, err)
	}
	if res, err := inv.Probe(t.Context(), "a.read", Invocation{}); err == nil || res.State != Unclear {
		t.Errorf("a probe that is not there: %+v, %v, want unclear", res, err)
	}
	if _, err := inv.Call(t.Context(), "a.nothing", Invocation{}); !fault.Is(err, fault.NotFound) {
		t.Errorf("an unknown tool: %v", err)
	}
}

func TestInvokerHoldsLocalToolsToTheirTransaction(t *testing.T) {
	t.Parallel()
	r, inv := newRegistry()
	def := define("time.now", readSchema)
	def.Kind = Local
	if err := r.Add(def, echo); err != nil {
		t.Fatal(err)
	}
	if _, err := inv.Call(t.Context(), "time.now", Invocation{}); !fault.Is(err, fault.Internal) {
		t.Errorf("a local call without a transaction: %v", err)
	}
}

func TestNothingFurtherIsPermittedUnlessTheCallerSaysSo(t *testing.T) {
	t.Parallel()
	need, err := scope.Parse("net.fetch:https://example.org/")
	if err != nil {
		t.Fatal(err)
	}
	if err := (Invocation{}).Allows(t.Context(), need); !fault.Is(err, fault.Denied) {
		t.Errorf("Allows = %v, want denied", err)
	}
	in := Invocation{Permit: func(context.Context, scope.Scope) error { return nil }}
	if err := in.Allows(t.Context(), need); err != nil {
		t.Errorf("Allows = %v, want permitted", err)
	}
}

func TestRegistryUnderConcurrentUse(t *testing.T) {
	t.Parallel()
	r, inv := newRegistry()
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			name := "t." + string(rune('a'+i))
			if err := r.Add(define(name, readSchema), echo); err != nil {
				t.Error(err)
			}
			for range 50 {
				if err := r.Validate(name, json.RawMessage(`{"path":"x"}`)); err != nil {
					t.Error(err)
				}
				if _, err := inv.Call(t.Context(), name, Invocation{Input: json.RawMessage(`{}`)}); err != nil {
					t.Error(err)
				}
				r.List()
			}
		})
	}
	wg.Wait()
	if got := len(r.List()); got != 16 {
		t.Errorf("%d tools, want 16", got)
	}
}
