package recipe

import "slices"

// keyKind says what a key of a verb takes.
type keyKind uint8

const (
	text    keyKind = iota // a template
	length                 // a duration, or a template that renders one
	count                  // a whole number from 1
	headers                // a mapping of templates
	tree                   // any value, its texts templates
	special                // read by the verb itself
)

// argument is one key of a verb.
type argument struct {
	name     string
	kind     keyKind
	use      use
	required bool
	words    []string // what it can be, if it is not free
}

// verb is one thing a step can do.
type verb struct {
	name    string
	main    string // the key that a plain text stands for; "" if it takes keys only
	args    []argument
	result  *shape // nil: it has none
	outside bool   // it may be refused, fail or be in doubt for reasons outside
	needs   string // the kind of run it starts, "" for none
	Says    string // in English, for whoever reads what a recipe may do
}

func (v *verb) arg(name string) *argument {
	i := slices.IndexFunc(v.args, func(a argument) bool { return a.name == name })
	if i < 0 {
		return nil
	}
	return &v.args[i]
}

func (v *verb) argNames() []string {
	out := make([]string, len(v.args))
	for i, a := range v.args {
		out[i] = a.name
	}
	return out
}

// verbs are all there are: those of KARMAX first, then those of this format alone.
var verbs = []*verb{
	{name: "ask", main: "text", result: textShape, outside: true, Says: "ask the agent, who may use its tools",
		args: []argument{{name: "text", use: asPrompt, required: true}}},
	{name: "observe", main: "text", result: textShape, outside: true, Says: "let the agent look, without anything that sends or changes but its memory",
		args: []argument{{name: "text", use: asPrompt, required: true}}},
	{name: "harness", main: "text", result: textShape, outside: true, needs: "delegation", Says: "hand work to a coding agent",
		args: []argument{{name: "text", use: asPrompt, required: true}}},
	{name: "gateway", main: "text", result: textShape, outside: true, Says: "ask a model once, without tools",
		args: []argument{{name: "text", use: asPrompt, required: true}}},
	{name: "http", result: textShape, outside: true, Says: "send a request to",
		args: []argument{{name: "url", use: asURL, required: true}, {name: "method", words: methods}, {name: "headers", kind: headers},
			{name: "body"}, {name: "json", kind: tree}}},
	{name: "tool", result: anyShape, outside: true, Says: "use the tool",
		args: []argument{{name: "name", required: true, kind: special}, {name: "input", kind: tree}}},
	{name: "recall", main: "text", result: textShape, outside: true, Says: "search memory",
		args: []argument{{name: "text", required: true}, {name: "limit", kind: count}}},
	{name: "remember", main: "fact", outside: true, Says: "store a fact in memory",
		args: []argument{{name: "fact", required: true}}},
	{name: "notify", main: "title", outside: true, Says: "notify you",
		args: []argument{{name: "title", required: true}, {name: "body"}}},
	{name: "propose", outside: true, Says: "propose an action, which you may accept",
		args: []argument{{name: "title", required: true}, {name: "action", required: true}, {name: "summary"}}},
	{name: "remind", outside: true, Says: "set you a reminder",
		args: []argument{{name: "title", required: true}, {name: "due"}, {name: "notes"}}},
	{name: "send", outside: true, needs: "send", Says: "send a message to",
		args: []argument{{name: "to", required: true}, {name: "text", required: true}}},
	{name: "sleep", main: "for", Says: "wait",
		args: []argument{{name: "for", kind: length, required: true}}},
	{name: "log", main: "text", Says: "write to its log",
		args: []argument{{name: "text", required: true}, {name: "level", words: []string{"debug", "info", "warn", "error"}}}},

	{name: "wait_signal", main: "name", result: anyShape, Says: "wait for the signal",
		args: []argument{{name: "name", required: true, kind: special}, {name: "timeout", kind: special}}},
	{name: "run", main: "target", outside: true, Says: "start and wait for",
		args: []argument{{name: "target", required: true, kind: special}}},
	{name: "foreach", result: &shape{elem: &shape{open: true}}, Says: "for each item",
		args: []argument{{name: "in", required: true, kind: special}, {name: "var", kind: special}, {name: "limit", kind: special},
			{name: "concurrency", kind: special}, {name: "do", required: true, kind: special}}},
	{name: "parallel", result: anyShape, Says: "do side by side",
		args: []argument{{name: "branches", required: true, kind: special}, {name: "join", kind: special}, {name: "quorum", kind: special}}},
	{name: "delegate", main: "text", result: textShape, outside: true, needs: "delegation", Says: "hand work to a coding agent",
		args: []argument{{name: "text", use: asPrompt, required: true}}},
	{name: "workflow", main: "name", needs: "workflow", Says: "start the workflow",
		args: []argument{{name: "name", required: true, kind: special}}},
}

var (
	methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}
	joins   = []string{"all", "all-settled", "first", "quorum"}
)

// karmax is how many of verbs KARMAX has.
const karmax = 14

func verbOf(name string) *verb {
	for _, v := range verbs {
		if v.name == name {
			return v
		}
	}
	return nil
}

func verbNames(list []*verb) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.name
	}
	return out
}

// VerbNames are the verbs of this format; KarmaxVerbs those of KARMAX's.
func VerbNames() []string { return verbNames(verbs) }

// KarmaxVerbs are the verbs of KARMAX's format.
func KarmaxVerbs() []string { return verbNames(verbs[:karmax]) }

// Result reports whether a verb has a result that can be given a name.
func Result(name string) bool { v := verbOf(name); return v != nil && v.result != nil }

// Needs are the kinds of run that steps can start.
func Needs() (out []string) {
	for _, v := range verbs {
		if v.needs != "" && !slices.Contains(out, v.needs) {
			out = append(out, v.needs)
		}
	}
	return out
}
