package abi

import (
	"slices"
	"strings"
)

// Function says what a host function needs.
type Function struct {
	// Class and Value are the capability that a manifest has to declare for it: of class
	// memory the value is "" or ":write", behind the namespace. Without a class it needs
	// none; "http" and "tool" look at what a request names.
	Class, Value string
	// Free reaches nothing: it has no number and nobody records it.
	Free bool
	// Own is a function of the module "ombud" only, which KARMAX does not have.
	Own bool
}

// Declared says whether a manifest with these capabilities has the one that the function
// needs. Whatever its namespace is called, there is one memory.
func (f Function) Declared(capabilities []string) bool {
	return f.Class == "" || slices.ContainsFunc(capabilities, func(c string) bool {
		class, pattern, _ := strings.Cut(c, ":")
		switch {
		case class != f.Class:
			return false
		case class == "memory" && pattern != "*":
			return pattern != "" && strings.HasSuffix(pattern, ":write") == (f.Value == ":write")
		}
		return Covers(pattern, f.Value)
	})
}

// Covers says whether a pattern of a capability covers a value: it is "*" or the same, ends
// in ".*" and is its beginning, or begins with "*." and is its end.
func Covers(pattern, value string) bool {
	if pattern == "*" || pattern == value {
		return true
	}
	if begin, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasSuffix(begin, ".") && strings.HasPrefix(value, begin) {
		return true
	}
	end, ok := strings.CutPrefix(pattern, "*")
	return ok && strings.HasPrefix(end, ".") && strings.HasSuffix(value, end)
}

// CoversHost says whether a manifest with these capabilities names a host of the web, by
// itself or with its port, both in lower case.
func CoversHost(capabilities []string, host, withPort string) bool {
	return slices.ContainsFunc(capabilities, func(c string) bool {
		pattern, ok := strings.CutPrefix(c, "http:")
		pattern = strings.ToLower(pattern)
		return ok && (Covers(pattern, host) || Covers(pattern, withPort))
	})
}

// Functions are all host functions there are, by their names.
var Functions = map[string]Function{
	"log":               {Free: true},
	"trigger":           {Free: true},
	"config":            {Free: true},
	"hosttool":          {Free: true},
	"operator_chats":    {Free: true},
	"recall":            {Class: "memory"},
	"remember":          {Class: "memory", Value: ":write"},
	"notify":            {Class: "tool", Value: "app.push"},
	"ask":               {Class: "tool", Value: "agent.ask"},
	"harness":           {Class: "tool", Value: "harness"},
	"gateway":           {Class: "tool", Value: "gateway"},
	"summarize":         {Class: "tool", Value: "summarize"},
	"propose":           {Class: "tool", Value: "propose"},
	"remind":            {Class: "tool", Value: "reminder.add"},
	"http":              {},
	"tool":              {},
	"short_set":         {Class: "memory", Value: ":write"},
	"short_get":         {Class: "memory"},
	"short_all":         {Class: "memory"},
	"short_forget":      {Class: "memory", Value: ":write"},
	"chat_summary_get":  {Class: "memory"},
	"chat_summary_save": {Class: "memory", Value: ":write"},
	"run_loop":          {Class: "tool", Value: "loop.run"},

	"step_begin":   {Free: true, Own: true},
	"step_end":     {Free: true, Own: true},
	"sleep":        {Own: true},
	"after":        {Own: true},
	"cancel_after": {Own: true},
	"wait_signal":  {Own: true},
	"fence":        {Free: true, Own: true},
	"write_log":    {Free: true, Own: true},
	"progress":     {Free: true, Own: true},
}
