package recipe

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var testNow = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// read reads a recipe that is in order.
func read(t testing.TB, text string) *Recipe {
	t.Helper()
	r, problems := Read("test.yaml", []byte(text), testNow, nil)
	if err := Fault(problems); err != nil {
		t.Fatal(err)
	}
	return r
}

// of is a recipe with the given steps.
func of(steps string) string {
	return "ombud: recipe/v1\nname: test\non: {manual: true}\nsteps:\n" + steps
}

func TestExamplesAreInOrder(t *testing.T) {
	t.Parallel()
	if len(Examples()) < 3 || !slices.Contains(Examples(), "morning-briefing") {
		t.Fatalf("examples: %v", Examples())
	}
	var all []*Recipe
	for _, name := range Examples() {
		text, err := Example(name)
		if err != nil {
			t.Fatal(err)
		}
		r := read(t, string(text))
		if r.Name != name || r.Foreign {
			t.Errorf("%s: %+v", name, r)
		}
		if trial := r.Try(t.Context(), "manual", nil, nil); trial.Error != "" || len(trial.Steps) == 0 {
			t.Errorf("%s: %s", name, trial.Error)
		}
		all = append(all, r)
	}
	problems, _ := Check(World{}, all)
	if err := Fault(problems); err != nil {
		t.Error(err)
	}
}

// Every verb in one file, which the tests of the runtime use too.
func TestEveryVerbIsRead(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/every.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r := read(t, string(text))
	have := map[string]bool{}
	ids := map[string]bool{}
	Walk(r.Steps, func(s *Step) {
		have[s.Verb] = true
		if ids[s.ID] {
			t.Errorf("two steps are called %s", s.ID)
		}
		ids[s.ID] = true
	})
	for _, v := range VerbNames() {
		if !have[v] && v != "workflow" {
			t.Errorf("no step does %s", v)
		}
	}
}

func TestAllThatIsWrongIsToldAtOnceWithItsPlaceAndTheWayOut(t *testing.T) {
	t.Parallel()
	text := `ombud: recipe/v1
nme: x
name: has space
on:
  - schedule: "0 0 30 2 *"
  - {schedule: "@daily", zone: Europe/Stokholm}
  - evnt: foo
  - {webhook: /hooks/a}
  - {webhook: hooks, verify: open, secrets: [a]}
grants: ["net.fetc:https://a", "caps.write", "memory.read", "memory.read:main"]
steps:
  - notfy: hi
  - when: "{{ .brief }}"
    notify: {title: "x", bdy: "y"}
  - log: x
    else:
      - log: y
  - ask: "{{ .late"
  - ask: "{{ .late }}"
  - gateway: x
    as: late
  - gateway: x
    as: late
  - gateway: x
    as: now
  - notify: x
    as: y
  - sleep: 3q
  - workflow: w
  - notify: {title: a}
    timeout: 1s
  - log: x
    retry: {attempts: 3}
  - ask: x
    retry: {attempts: 1}
`
	_, problems := Read("x.yaml", []byte(text), testNow, nil)
	err := Fault(problems)
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, want := range []string{
		`x.yaml:2:1: a recipe has no key "nme"`, `did you mean "name"?`,
		`x.yaml:3:7: "has space" is no name of a recipe`,
		"x.yaml:5:5: ", "would never fire",
		"x.yaml:6:6: ", "Europe/Stockholm",
		`x.yaml:7:5: this is nothing that starts a recipe`, `did you mean "event"?`,
		"x.yaml:8:6: the webhook does not say how a request proves itself",
		`x.yaml:9:15: "hooks" is no path of a webhook`, "nothing asks for its secrets",
		`x.yaml:10:10: the grant "net.fetc:https://a" grants nothing`, "did you mean net.fetch?",
		`the grant "caps.write" grants nothing: no recipe changes authority`,
		`the grant "memory.read:main" grants nothing: "memory.read" covers it`,
		`x.yaml:12:5: "notfy" is nothing a step can do`, `did you mean "notify"?`,
		`x.yaml:13:11: .brief: there is no "brief" here`,
		`notify has no key "bdy"`, `did you mean "body"?`,
		"else without a when is never done",
		"x.yaml:18:10: the template cannot be read",
		`.late is used before it is there: the step that makes it stands in line`,
		`"late" is the name of another result already`,
		`every recipe has .now already`,
		`notify has no result that could be called "y"`,
		`"3q" is no length of time`,
		"workflow needs a later version of ombud",
		"notify has no timeout",
		"log cannot be tried again as a whole",
		"retry with fewer than 2 attempts never tries again",
	} {
		if all := allOf(problems); !strings.Contains(all, want) {
			t.Errorf("nothing says %q in\n%s", want, all)
		}
	}
	for _, p := range problems {
		if p.Line == 0 {
			t.Errorf("no line: %s", p)
		}
	}
}

func allOf(problems []Problem) string {
	var b strings.Builder
	for _, p := range problems {
		b.WriteString(p.String() + "\n")
	}
	return b.String()
}

func TestWhatCannotBeDoneIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":        "the file is empty",
		"- a":     "a recipe is a mapping",
		"a: b":    "the file does not say what it is",
		"a: [":    "not valid YAML",
		"a: \x01": "control character",
		"ombud: recipe/v2\nname: a\non: {manual: true}\nsteps: [{log: x}]":           "no format of a recipe",
		"ombud: recipe/v1\nname: a\nname: b\non: {manual: true}\nsteps: [{log: x}]":  "written twice",
		"ombud: recipe/v1\nname: &a a\non: {manual: true}\nsteps: [{log: *a}]":       "anchors and aliases",
		"ombud: recipe/v1\nname: a\non: {manual: true}\nsteps: []":                   "at least one step",
		"ombud: recipe/v1\nname: a\nsteps: [{log: x}]":                               "nothing starts this recipe",
		"ombud: recipe/v1\nname: a\non: {manual: true, event: x}\nsteps: [{log: x}]": "stand in one trigger",
		"ombud: recipe/v1\nname: a\non: {manual: true}\n---\nsteps: [{log: x}]":      "a second document",
		of("  - {log: a, notify: b}"):                                                "has log and notify",
		of("  - as: x"):                                                              "the step does nothing",
		of("  - http: {url: 'https://a', body: x}"):                                  "a GET request has no body",
		of("  - http: {url: 'https://a', method: GTE}"):                              `method cannot be "GTE"`,
		of("  - tool: {name: '{{ .now }}'}"):                                         "cannot depend on a value",
		of("  - run: recipes:x"):                                                     "nothing that can be run",
		of("  - foreach: {in: [a, b], limit: 1, do: [{log: x}]}"):                    "the limit is 1",
		of("  - foreach: {in: [a], var: now, do: [{log: x}]}"):                       "is the name of something else",
		of("  - foreach: {in: [a], limit: 1001, do: [{log: x}]}"):                    "from 1 to 1000",
		of("  - foreach: {in: [a], do: [{ask: x, as: y}]}\n  - log: '{{ .y }}'"):     `there is no "y" here`,
		of("  - parallel: {branches: {a: [{log: x}], A: [{log: x}]}}"):               "one name but for its letters' case",
		of("  - parallel: {branches: {a: [{ask: x, as: state}]}}"):                   `a result called "state", which says how the branch ended`,
		of("  - parallel: {join: quorum, quorum: 3, branches: {a: [{log: x}]}}"):     "cannot be reached",
		of("  - parallel: {quorum: 1, branches: {a: [{log: x}]}}"):                   "no meaning with join: all",
		of("  - parallel: {join: '{{ .now }}', branches: {a: [{log: x}]}}"):          `join cannot be "{{ .now }}"`,
		of("  - parallel: {join: [all], branches: {a: [{log: x}]}}"):                 "join takes a text, not a list",
		of("  - parallel: {join: some, branches: {a: [{log: x}]}}"):                  "it is one of all, all-settled, first, quorum",
		of("  - parallel: {join: quorum, quorum: [1], branches: {a: [{log: x}]}}"):   "quorum takes a text, not a list",
		of("  - foreach: {in: [a], limit: {b: 3}, do: [{log: x}]}"):                  "limit takes a text, not a mapping",
		of("  - log: '{{ range 100 }}x{{ end }}'"):                                   "range counts to a number",
		of("  - log: '{{ define \"x\" }}a{{ end }}'"):                                "cannot define others",
		of("  - log: '{{ nofunc 1 }}'"):                                              "nofunc",
		of("  - log: '{{ .trigger.kind.x }}'"):                                       "is a text and has no parts",
		of("  - log: '{{ .inputs.x }}'"):                                             `there is no "x" here`,
		of("  - ask: x\n    as: a\n  - log: '{{ with .a }}{{ .b }}{{ end }}'"):       "is a text and has no parts",
		of(strings.Repeat("  - log: x\n", 201)):                                      "more than 200 steps",
		of("  - log: " + strings.Repeat("[", 50) + strings.Repeat("]", 50)):          "nested more than",
		strings.Repeat("#", MaxFile+1):                                               "at most",
	} {
		_, problems := Read("x.yaml", []byte(text), testNow, nil)
		if all := allOf(problems); !strings.Contains(all, want) {
			t.Errorf("%.80q: nothing says %q in\n%s", text, want, all)
		}
	}
}

// An alias can stand for much more than it says.
func TestAliasesAreBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("a: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 9; i++ {
		p := strings.Repeat("*a"+string(rune('0'+i-1))+", ", 9)
		b.WriteString("b" + string(rune('0'+i)) + ": &a" + string(rune('0'+i)) + " [" + p + "*a" + string(rune('0'+i-1)) + "]\n")
	}
	for text, want := range map[string]string{
		b.String():           "stands for more than",
		"a: &a [*a]":         "within what it stands for",
		"a: *a":              "no anchor &a",
		"a: {<<: [x], b: c}": "a merge key takes a mapping",
	} {
		notes := &Notes{File: "x.yaml"}
		if n := Parse([]byte(text), true, notes); n != nil || !strings.Contains(allOf(notes.Problems), want) {
			t.Errorf("nothing says %q in %s", want, allOf(notes.Problems))
		}
	}
	notes := &Notes{File: "x.yaml"}
	n := Parse([]byte("a: &x {k: v, w: z}\nb: {<<: *x, k: own}\n"), true, notes)
	if n == nil || n.Get("b").Get("k").Text != "own" || n.Get("b").Get("w").Text != "z" {
		t.Errorf("merged: %+v %v", n, notes.Problems)
	}
}

func TestRecipesAreHeldAgainstEachOtherAndTheWorld(t *testing.T) {
	t.Parallel()
	make := func(name, on, steps string) *Recipe {
		r, problems := Read(name+".yaml", []byte("ombud: recipe/v1\nname: "+name+"\non: "+on+"\nsteps:\n"+steps), testNow, nil)
		if err := Fault(problems); err != nil {
			t.Fatal(err)
		}
		return r
	}
	a := make("a", "{webhook: /hooks/x, verify: open}", "  - run: recipe:b\n")
	b := make("b", "{webhook: /hooks/x, verify: open}", "  - run: recipe:c\n")
	c := make("c", "{event: comms.mesage}", "  - run: recipe:a\n  - tool: {name: noitfy.send}\n  - tool: {name: notify.send, input: {mesage: x}}\n  - delegate: x\n  - run: loop:dea\n")
	twin := make("a", "{manual: true}", "  - run: recipe:bb\n")
	twin.File = "other.yaml"
	problems, _ := Check(World{
		Tools: map[string]jsonText{"notify.send": jsonText(`{"type":"object","additionalProperties":false,"required":["message"],"properties":{"message":{"type":"string"}}}`)},
		Kinds: func(string) bool { return false }, Loops: []string{"dead"},
	}, []*Recipe{a, b, c, twin})
	got := allOf(problems)
	for _, want := range []string{
		"the recipe would run itself: a → b → c → a", `the webhook /hooks/x is in a.yaml:3 too`, `other.yaml:2:1: the recipe "a" is in a.yaml:2 too`, `a.yaml:2:1: the recipe "a" is in other.yaml:2 too`, `the webhook /hooks/x is in b.yaml:3 too`,
		`no event is of kind "comms.mesage"`, `did you mean "comms.message"?`, `there is no tool "noitfy.send"`, `did you mean "notify.send"?`,
		`notify.send has no input "mesage"`, `notify.send needs the input "message"`, "delegate needs what this ombud does not have yet",
		`there is no loop "dea"`, `there is no recipe "bb"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("nothing says %q in\n%s", want, got)
		}
	}
}

func TestAKindOfEventThatNeverComesIsLetPassAndSaid(t *testing.T) {
	t.Parallel()
	for kind, silent := range map[string]bool{
		"user.defined": false, "delegation.completed": false, "user.*": false, "memory.updated": true, "comms.*": true, "*": true,
	} {
		r := &Recipe{Name: "a", On: []On{{Event: &Event{Kind: kind}}}}
		problems, warnings := Check(World{}, []*Recipe{r})
		if len(problems) > 0 || (len(warnings) == 0) != silent {
			t.Errorf("%s: %v %v", kind, problems, warnings)
		}
	}
}

func TestAnUnknownKindOfEventSaysWhichThereAre(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"comms.mesage": `did you mean "comms.message"?`, "memory.everything": "it is one of memory.updated", "notices": "comms.*, timer.*",
	} {
		if got := eventFix(kind); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
}

// Two ranges for one key, as 1 to 1000 and 1 to 16, help nobody.
func TestANumberThatIsWrongIsToldOnce(t *testing.T) {
	t.Parallel()
	_, problems := Read("x.yaml", []byte(`ombud: recipe/v1
name: x
on: {manual: true}
steps:
  - foreach: {in: "[1]", limit: 0, concurrency: 99, do: [{log: x}]}
  - parallel: {join: quorum, quorum: 0, branches: {one: [{log: x}], two: [{log: y}]}}
  - ask: x
    retry: {attempts: many}
`), testNow, nil)
	all := allOf(problems)
	for _, want := range []string{"limit is a whole number from 1 to 1000", "concurrency is a whole number from 1 to 16", "quorum is a whole number from 1 to 16", "attempts is a whole number from 1 to 20"} {
		if strings.Count(all, want) != 1 {
			t.Errorf("not once: %q in\n%s", want, all)
		}
	}
	if len(problems) != 4 {
		t.Errorf("%d problems:\n%s", len(problems), all)
	}
}

type jsonText = json.RawMessage
