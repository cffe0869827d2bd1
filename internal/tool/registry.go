package tool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
)

const maxName = 64 // the providers' limit

var nameForm = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]*(\.[a-zA-Z0-9_-]+)*$`)

// Quarantine names a tool that was declared but cannot be used, and why.
type Quarantine struct{ Name, Reason string }

// InvalidInput is an input that does not fit its tool's schema, with everything
// that is wrong with it. It comes wrapped in a fault of class Invalid.
type InvalidInput struct {
	Tool     string
	Problems []Problem
}

func (e *InvalidInput) Error() string {
	return fmt.Sprintf("the input of %s does not fit its schema: %s", e.Tool, joinProblems(e.Problems))
}

// entry is one usable tool. It never changes once it is in the table.
type entry struct {
	owner   string     // who offered it by Replace; "" for a tool of ombud's own
	def     Definition // without Probe
	schema  schema
	digest  string
	handler Handler
	probe   func(ctx context.Context, in Invocation) (ProbeResult, error)
}

// table is what Registry and Invoker share.
type table struct {
	mu          sync.RWMutex
	byName      map[string]*entry // canonical
	byModelName map[string]*entry
	quarantined map[string][]Quarantine // by owner
}

func (t *table) get(name string) (*entry, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e, ok := t.byName[name]
	if !ok {
		e, ok = t.byModelName[name]
	}
	return e, ok
}

// Registry knows every tool but can call none.
type Registry struct {
	table *table
	log   *slog.Logger
}

// NewRegistry returns an empty registry and the one Invoker that reaches the
// handlers put into it. Whoever holds the Invoker can act: hand it to act only.
func NewRegistry(log *slog.Logger) (*Registry, *Invoker) {
	t := &table{byName: map[string]*entry{}, byModelName: map[string]*entry{}, quarantined: map[string][]Quarantine{}}
	return &Registry{table: t, log: log}, &Invoker{table: t, log: log}
}

// Add makes a tool known. A tool that cannot be used as declared is quarantined:
// Add returns the reason with class Config, Quarantined lists it, and every other
// tool stays as it is.
func (r *Registry) Add(def Definition, h Handler) error {
	e, err := newEntry(def, h)
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	if err == nil {
		err = r.table.free(def.Name)
	}
	if err != nil {
		r.quarantine("", Quarantine{def.Name, err.Error()})
		return fault.New(fault.Config, "tool %q is quarantined: %w", cut(def.Name, maxName), err)
	}
	r.table.put(e)
	return nil
}

// quarantine is called with the table locked.
func (r *Registry) quarantine(owner string, q Quarantine) {
	q.Name = cut(q.Name, maxNearName)
	r.table.quarantined[owner] = append(r.table.quarantined[owner], q)
	r.log.Warn("tool quarantined", "tool", cut(q.Name, maxName), "reason", q.Reason)
}

func (t *table) put(e *entry) {
	t.byName[e.def.Name] = e
	t.byModelName[ModelName(e.def.Name)] = e
}

// free reports whether name can be taken. Two names that a model could not tell
// apart are one name.
func (t *table) free(name string) error {
	if other, taken := t.byModelName[ModelName(name)]; taken {
		return fmt.Errorf("the name is taken by %s", other.def.Name)
	}
	return nil
}

func newEntry(def Definition, h Handler) (*entry, error) {
	if def.Repeat == "" {
		def.Repeat = AtMostOnce
	}
	if err := checkDefinition(def, h); err != nil {
		return nil, err
	}
	s, err := newSchema(def.Input)
	if err != nil {
		return nil, err
	}
	digest, err := digestOf(def, s)
	if err != nil {
		return nil, err
	}
	e := &entry{schema: s, digest: digest, handler: h, probe: def.Probe}
	def.Probe, def.Input = nil, s.forModel
	e.def = def
	return e, nil
}

func checkDefinition(def Definition, h Handler) error {
	switch {
	case len(def.Name) > maxName || !nameForm.MatchString(def.Name):
		return fmt.Errorf("the name must match %s and have at most %d characters", nameForm, maxName)
	case strings.TrimSpace(def.Description) == "":
		return errors.New("the description is empty")
	case def.Kind != Local && def.Kind != Effect:
		return fmt.Errorf("kind is %q, must be %s or %s", def.Kind, Local, Effect)
	case def.Repeat != AtMostOnce && def.Repeat != Repeatable && def.Repeat != Probed:
		return fmt.Errorf("repeat is %q, must be %s, %s or %s", def.Repeat, AtMostOnce, Repeatable, Probed)
	case (def.Repeat == Probed) != (def.Probe != nil):
		return errors.New("repeat probed and a probe go together")
	case def.Resumes && (def.Kind != Effect || def.Repeat != Repeatable):
		return errors.New("only an effect that is repeatable can be resumed")
	case def.Asks < 0 || def.Asks > 0 && def.Kind != Effect:
		return errors.New("only an effect can have people asked within it: what is local is one commit")
	case def.ReadOnly && def.Irreversible:
		return errors.New("read-only and irreversible exclude each other")
	case def.Timeout <= 0 || def.MaxOutput <= 0:
		return errors.New("timeout and output limit must be over zero")
	case def.Source == "":
		return errors.New("the source of its results is missing")
	case def.Scopes == nil || def.Summary == nil || h == nil:
		return errors.New("scopes, summary and handler are needed")
	}
	return nil
}

// digestOf identifies what was approved when a call was approved: if a tool
// changes what it says or how it may be treated, its digest changes.
func digestOf(def Definition, s schema) (string, error) {
	raw, err := json.Marshal(struct {
		Name         string          `json:"name"`
		Description  string          `json:"description"`
		Input        json.RawMessage `json:"input"`
		Kind         Kind            `json:"kind"`
		ReadOnly     bool            `json:"read_only"`
		Irreversible bool            `json:"irreversible"`
		Repeat       Repeat          `json:"repeat"`
		Revision     string          `json:"revision,omitempty"`
	}{def.Name, def.Description, s.source, def.Kind, def.ReadOnly, def.Irreversible, def.Repeat, def.Revision})
	if err != nil {
		return "", err
	}
	canonical, err := Canonical(raw)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

// Get returns a tool by its canonical name or the name a model knows it by. Its
// Input is the schema as a model is shown it; its Probe is nil. The error, class
// NotFound, names what was probably meant, or why the tool is quarantined.
func (r *Registry) Get(name string) (Definition, error) {
	e, err := r.entry(name)
	if err != nil {
		return Definition{}, err
	}
	return e.def, nil
}

func (r *Registry) entry(name string) (*entry, error) {
	if e, ok := r.table.get(name); ok {
		return e, nil
	}
	shown := cut(name, maxNearName)
	for _, q := range r.Quarantined() {
		if q.Name == name || ModelName(q.Name) == name {
			return nil, fault.New(fault.NotFound, "tool %q is quarantined: %s", shown, q.Reason)
		}
	}
	missing := fault.New(fault.NotFound, "there is no tool %q", shown)
	if names := near(name, r.names()); len(names) > 0 {
		list := strings.Join(names, ", ")
		return nil, fault.New(fault.NotFound, "%w; did you mean %s?", missing, list).WithHint("did you mean %s?", list)
	}
	return nil, missing
}

func (r *Registry) names() []string {
	var out []string
	for _, d := range r.List() {
		out = append(out, d.Name)
	}
	return out
}

// List returns every usable tool, ordered by name, in the form Get returns.
func (r *Registry) List() []Definition {
	r.table.mu.RLock()
	defer r.table.mu.RUnlock()
	out := make([]Definition, 0, len(r.table.byName))
	for _, e := range r.table.byName {
		out = append(out, e.def)
	}
	slices.SortFunc(out, func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Quarantined returns what was declared but cannot be used: of each owner, ombud
// first, in the order it was declared.
func (r *Registry) Quarantined() []Quarantine {
	r.table.mu.RLock()
	defer r.table.mu.RUnlock()
	var out []Quarantine
	for _, owner := range slices.Sorted(maps.Keys(r.table.quarantined)) {
		out = append(out, r.table.quarantined[owner]...)
	}
	return out
}

// Digest returns the SHA-256, in hex, over what a tool says it is: its name,
// description, schema, kinds and revision. Empty if there is no such tool.
func (r *Registry) Digest(name string) string {
	if e, ok := r.table.get(name); ok {
		return e.digest
	}
	return ""
}

// Validate checks an input against a tool's schema and reports everything that is
// wrong, each with its JSON pointer. The error is of class Invalid (and holds an
// *InvalidInput when the text was JSON) or NotFound.
func (r *Registry) Validate(name string, input json.RawMessage) error {
	e, err := r.entry(name)
	if err != nil {
		return err
	}
	canonical, err := Canonical(input)
	if err != nil {
		return fault.New(fault.Invalid, "the input of %s: %w", e.def.Name, err)
	}
	if problems := e.schema.check(canonical); len(problems) > 0 {
		return fault.New(fault.Invalid, "%w", &InvalidInput{Tool: e.def.Name, Problems: problems})
	}
	return nil
}

func errNotPermitted(need scope.Scope) error {
	return fault.New(fault.Denied, "the call was not allowed to use %s", need)
}
