package recipe

import (
	"encoding/json"
	"regexp"
	"time"
)

// Mark is the first key of a file in this package's own format, with its only value.
const (
	MarkKey = "ombud"
	Mark    = "recipe/v1"
)

// Recipe is a file that was read and found to be in order.
type Recipe struct {
	File        string
	Name        string
	Called      Place // where its name stands
	Description string
	Enabled     bool // as the file says
	On          []On
	Inputs      []Input
	Grants      []Grant
	Steps       []*Step
	// Foreign recipes keep the rules of their own format: names that nothing binds are
	// empty, and every key of the payload is a name.
	Foreign  bool
	Warnings []Problem
}

// Names of things are short and can stand in a path, an id and a command.
var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$`)

const nameText = "1 to 48 letters, digits and . _ -"

// ValidName reports whether a recipe can be called so.
func ValidName(name string) bool { return nameRule.MatchString(name) }

// Subject is who a recipe acts as.
func Subject(name string) string { return "recipe:" + name }

// On is one thing that starts a recipe. Exactly one of its parts is set.
type On struct {
	Schedule *Schedule
	Event    *Event
	Webhook  *Webhook
	Manual   bool
	Place
}

// Schedule starts a recipe at times.
type Schedule struct {
	When   string // as package cron reads it
	Zone   string // "" is the machine's
	Missed string // once, skip or all; "" is once
	Grace  time.Duration
	Jitter time.Duration
}

// Event starts a recipe when an event of a kind is recorded.
type Event struct {
	Kind  string
	Where []Match // all of them
}

// Match is what a key of a payload must be. Exactly one of its parts is set.
type Match struct {
	Key    string // path in the payload, its parts set apart by dots
	OneOf  []string
	Prefix string
	Exists *bool
}

// Webhook starts a recipe when a request comes in. The zero Verify is not mounted.
type Webhook struct {
	Path    string
	Verify  string   // one of trigger.Schemes
	Secrets []string // names of secrets, any of which is good
	// Where a generic signature is, and what the sender calls a call; "" for the defaults.
	Header, IDHeader string
}

// Input is what a recipe may be given when it is started by hand.
type Input struct {
	Name        string
	Type        string // text, number or truth
	Required    bool
	Default     json.RawMessage
	Description string
	Place
}

// Grant is a scope a recipe may use beyond its role.
type Grant struct {
	Scope string // as package scope reads it
	Text  string // as the file has it
	Place
}

// Step is one step.
type Step struct {
	ID      string // stable: it names what is recorded
	Verb    string
	As      string // the name its result gets, "" for none
	When    *Template
	Else    []*Step
	Retry   *Retry
	Timeout time.Duration

	Args    map[string]*Template // what the verb takes, by key
	Headers []Header             // of http
	Input   *Tree                // of tool, and the body of http as JSON
	Foreach *Foreach
	Join    *Join
	Place
}

// Header is one header of a request.
type Header struct {
	Name  string
	Value *Template
}

// Retry says how often a step is tried and how long after a failure.
type Retry struct {
	Attempts int           // in all
	Backoff  time.Duration // after the first; doubled after each, at most an hour
}

// Foreach does steps once for each item of a list.
type Foreach struct {
	In          *Template   // renders a JSON list, or a line for an item
	List        []*Template // instead of In
	Var         string
	Limit       int // more items are an error
	Concurrency int
	Do          []*Step
}

// Join does branches side by side.
type Join struct {
	How      string // all, all-settled, first or quorum
	Quorum   int
	Branches []Branch
}

// Branch is a named row of steps.
type Branch struct {
	Name  string
	Steps []*Step
	Place
}

// Tree is a JSON value whose texts are templates.
type Tree struct {
	Text   *Template
	Value  json.RawMessage // a number, a truth value or null
	Fields []TreeField     // of an object
	Items  []*Tree         // of an array
	Object bool
	Array  bool
}

// TreeField is one member of an object.
type TreeField struct {
	Key   string
	Value *Tree
}

// Walk calls fn for every step, those within others too, in the order they stand.
func Walk(steps []*Step, fn func(*Step)) {
	for _, s := range steps {
		fn(s)
		if s.Foreach != nil {
			Walk(s.Foreach.Do, fn)
		}
		if s.Join != nil {
			for _, b := range s.Join.Branches {
				Walk(b.Steps, fn)
			}
		}
		Walk(s.Else, fn)
	}
}
