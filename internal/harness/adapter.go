package harness

import (
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// Name is a coding CLI.
type Name string

// The CLIs.
const (
	Claude   Name = "claude"
	Codex    Name = "codex"
	Gemini   Name = "gemini"
	OpenCode Name = "opencode"
	Pi       Name = "pi"

	// ACP is no CLI of its own: any agent that speaks the Agent Client Protocol.
	ACP Name = "acp"
)

// Adapter knows how one CLI prints.
type Adapter struct {
	Name   Name
	Tested []string // the versions whose output was recorded and read
	parser func() parser
}

// Adapters returns those of the five CLIs, in the order of their names.
func Adapters() []Adapter {
	return []Adapter{
		{Claude, []string{"2.1.197", "2.1.332"}, func() parser { return &claude{} }},
		{Codex, []string{"0.171.0"}, func() parser { return &codex{} }},
		{Gemini, []string{"0.61.0"}, func() parser { return &gemini{} }},
		{OpenCode, []string{"1.18.33"}, func() parser { return &opencode{} }},
		{Pi, []string{"0.73.1", "1.6.0"}, func() parser { return &pi{} }},
	}
}

// ByName returns the adapter of a CLI. The error is of class NotFound.
func ByName(name Name) (Adapter, error) {
	if name == ACP {
		return Adapter{Name: ACP, parser: func() parser { return &anyACP{} }}, nil
	}
	for _, a := range Adapters() {
		if a.Name == name {
			return a, nil
		}
	}
	return Adapter{}, fault.New(fault.NotFound, "no coding agent %q", fault.Cut(string(name), maxWord)).
		WithHint("known are claude, codex, gemini, opencode, pi and acp, for any other that speaks the Agent Client Protocol")
}

// Decoder returns a decoder of one run. version is what ParseVersion read, or
// "" if it was not asked; a version the stream tells itself goes before it.
func (a Adapter) Decoder(version string) *Decoder {
	b := &book{rec: Record{CLI: a.Name, Version: word(version)}}
	return &Decoder{adapter: a, parser: a.parser(), book: b}
}

// Warning is the version gate: it says whether a version was never tried.
func (a Adapter) Warning(version string) (Warning, bool) {
	if version == "" || slices.Contains(a.Tested, version) {
		return Warning{}, false
	}
	return Warning{Kind: WarnUntested, Detail: "not tested with " + string(a.Name) + " " + word(version), Count: 1}, true
}

// ParseVersion reads the answer to --version: "2.1.332 (Claude Code)",
// "codex-cli 0.171.0", "0.61.0". Give it stdout and stderr joined, for pi 0.73.1
// answers on stderr. It returns "" if no word of it looks like a version.
func ParseVersion(output string) string {
	for field := range strings.FieldsSeq(fault.Cut(output, maxPath)) {
		if field[0] >= '0' && field[0] <= '9' && strings.Contains(field, ".") {
			return word(field)
		}
	}
	return ""
}
