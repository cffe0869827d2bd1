// Package scripted replays answers from a YAML file, so that a test knows what
// the model will say and a crash test how often it was asked.
//
//	turns:
//	  - match: boiler            # the last message of the user holds this text
//	    steps:
//	      - text: let me look
//	        calls: [{tool: memory.recall, input: {query: boiler}}]
//	      - text: it is 4711     # the answer to the results of the calls
//	  - regexp: '^wait \d+$'
//	    steps:
//	      - delay: 2s
//	        text: here I am
//	      - error: {class: unavailable, message: overloaded, retry_after: 1s}
//	      - hang: true           # never answers: ends with the context
//	  - steps: [{text: anything else}]
//	log: asked.log               # one line for each request, before its answer
//
// Nothing is kept in memory. A request says by itself which step is due: the turn
// is the first one that matches its last user message, or, without match and
// regexp, the one whose number it is among the turns like that; the step is the
// number of answers already behind that message. So a process that was killed
// goes on where its history ends, and the same request has the same answer.
package scripted

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/model"
)

// Name is the name of the provider and of its only model.
const Name = "scripted"

type script struct {
	Turns []turn `yaml:"turns"`
	Log   string `yaml:"log"`
}

type turn struct {
	Match  string `yaml:"match"`
	Regexp string `yaml:"regexp"`
	Steps  []step `yaml:"steps"`

	re *regexp.Regexp
}

type step struct {
	Text  string   `yaml:"text"`
	Calls []call   `yaml:"calls"`
	Error *failure `yaml:"error"`
	Delay string   `yaml:"delay"`
	Hang  bool     `yaml:"hang"`

	delay time.Duration
}

// call is a tool call. Raw replaces Input where a test wants what is no JSON.
type call struct {
	Tool  string `yaml:"tool"`
	Input any    `yaml:"input"`
	Raw   string `yaml:"raw"`

	args string
}

type failure struct {
	Class      string `yaml:"class"`
	Message    string `yaml:"message"`
	RetryAfter string `yaml:"retry_after"`

	after time.Duration
}

// Provider is the model.Provider. It is safe for concurrent use, also by several
// processes with one log.
type Provider struct{ script script }

var _ model.Provider = (*Provider)(nil)

// Open reads the script in path. A relative log is beside it. What the script
// says wrongly is a Config error with its line.
func Open(path string) (*Provider, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.New(fault.Config, "read script: %w", err)
	}
	p, err := Parse(raw)
	if err != nil {
		return nil, fault.New(fault.Config, "script %s: %w", path, err)
	}
	if log := p.script.Log; log != "" && !filepath.IsAbs(log) {
		p.script.Log = filepath.Join(filepath.Dir(path), log)
	}
	return p, nil
}

// Parse reads a script. A relative log in it is taken from the working directory.
func Parse(raw []byte) (*Provider, error) {
	p := &Provider{}
	if err := yaml.UnmarshalWithOptions(raw, &p.script, yaml.Strict()); err != nil {
		return nil, fault.New(fault.Config, "%s", strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	if len(p.script.Turns) == 0 {
		return nil, fault.New(fault.Config, "it has no turns")
	}
	for i := range p.script.Turns {
		if err := p.script.Turns[i].check(); err != nil {
			return nil, fault.New(fault.Config, "turn %d: %w", i+1, err)
		}
	}
	return p, nil
}

func (t *turn) check() error {
	if t.Match != "" && t.Regexp != "" {
		return fault.New(fault.Config, "match and regexp exclude each other")
	}
	if t.Regexp != "" {
		re, err := regexp.Compile(t.Regexp)
		if err != nil {
			return fault.New(fault.Config, "regexp: %w", err)
		}
		t.re = re
	}
	if len(t.Steps) == 0 {
		return fault.New(fault.Config, "it has no steps")
	}
	for i := range t.Steps {
		if err := t.Steps[i].check(); err != nil {
			return fault.New(fault.Config, "step %d: %w", i+1, err)
		}
	}
	return nil
}

func (s *step) check() (err error) {
	ways := 0
	for _, has := range []bool{s.Text != "" || len(s.Calls) > 0, s.Error != nil, s.Hang} {
		if has {
			ways++
		}
	}
	if ways != 1 {
		return fault.New(fault.Config, "it needs one of text or calls, error, hang")
	}
	if s.delay, err = duration("delay", s.Delay); err != nil {
		return err
	}
	for i := range s.Calls {
		if err := s.Calls[i].check(); err != nil {
			return fault.New(fault.Config, "call %d: %w", i+1, err)
		}
	}
	if s.Error != nil {
		return s.Error.check()
	}
	return nil
}

func (c *call) check() error {
	switch {
	case c.Tool == "":
		return fault.New(fault.Config, "it names no tool")
	case c.Raw != "" && c.Input != nil:
		return fault.New(fault.Config, "input and raw exclude each other")
	case c.Raw != "":
		c.args = c.Raw
	case c.Input == nil:
		c.args = "{}"
	default:
		raw, err := json.Marshal(c.Input)
		if err != nil || raw[0] != '{' {
			return fault.New(fault.Config, "the input of %s is not a mapping", c.Tool)
		}
		c.args = string(raw)
	}
	return nil
}

func (f *failure) check() (err error) {
	if fault.CodeOf(fault.Class(f.Class)).Class != fault.Class(f.Class) {
		var names []string
		for _, c := range fault.Codes() {
			names = append(names, string(c.Class))
		}
		return fault.New(fault.Config, "error: no class %q; there are %s", f.Class, strings.Join(names, ", "))
	}
	f.after, err = duration("retry_after", f.RetryAfter)
	return err
}

func duration(what, s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fault.New(fault.Config, "%s: %q is no duration such as 500ms or 2s", what, s)
	}
	return d, nil
}

// Name returns "scripted".
func (*Provider) Name() string { return Name }

// Generate answers by the step that is due. A request no step is written for is
// Invalid: the test, not the daemon, is wrong.
func (p *Provider) Generate(ctx context.Context, req model.Request, sink model.Sink) (model.Response, error) {
	text, done, ordinal := position(req.Messages)
	i, ok := p.turn(text, ordinal)
	if err := p.note(i, done, text); err != nil {
		return model.Response{}, err
	}
	if !ok {
		return model.Response{}, fault.New(fault.Invalid, "the script has no turn for %q", text)
	}
	if steps := p.script.Turns[i].Steps; done >= len(steps) {
		return model.Response{}, fault.New(fault.Invalid, "turn %d of the script has only %d steps; the request is for step %d", i+1, len(steps), done+1)
	}
	return p.script.Turns[i].Steps[done].play(ctx, sink, i, done, ordinal)
}

// position returns the last message of the user, the number of answers behind it,
// and how many messages of the user came before it.
func position(messages []model.Message) (text string, done, ordinal int) {
	last := -1
	for i, m := range messages {
		if m.Role == model.User {
			if last >= 0 {
				ordinal++
			}
			last, text = i, m.Text()
		}
	}
	for _, m := range messages[last+1:] {
		if m.Role == model.Assistant {
			done++
		}
	}
	return text, done, ordinal
}

// turn returns the index of the turn for a message, -1 and false if there is none.
// Of the turns without a pattern the last one answers all further messages.
func (p *Provider) turn(text string, ordinal int) (int, bool) {
	at, plain := -1, 0
	for i, t := range p.script.Turns {
		switch {
		case t.re != nil && t.re.MatchString(text), t.Match != "" && strings.Contains(text, t.Match):
			return i, true
		case t.re == nil && t.Match == "":
			if plain <= ordinal {
				at = i
			}
			plain++
		}
	}
	return at, at >= 0
}

// note appends one line, as a whole, to the log: "turn step text".
func (p *Provider) note(turn, done int, text string) (err error) {
	if p.script.Log == "" {
		return nil
	}
	f, err := os.OpenFile(p.script.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fault.New(fault.Internal, "log of the script: %w", err)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fault.New(fault.Internal, "log of the script: %w", cerr)
		}
	}()
	if _, err = fmt.Fprintf(f, "%d %d %q\n", turn+1, done+1, text); err != nil {
		return fault.New(fault.Internal, "log of the script: %w", err)
	}
	return nil
}

func (s *step) play(ctx context.Context, sink model.Sink, turn, done, ordinal int) (model.Response, error) {
	if s.Hang {
		<-ctx.Done()
		return model.Response{}, model.ContextError(ctx, Name)
	}
	if s.delay > 0 {
		timer := time.NewTimer(s.delay)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	if err := model.ContextError(ctx, Name); err != nil {
		return model.Response{}, err
	}
	if f := s.Error; f != nil {
		return model.Response{}, fault.New(fault.Class(f.Class), "%w", &model.APIError{Provider: Name, Message: f.Message, RetryAfter: f.after})
	}
	out := model.Response{Text: s.Text, Stop: model.StopEnd, Model: Name, Provider: Name}
	for i, c := range s.Calls {
		id := fmt.Sprintf("scripted_%d_%d_%d_%d", ordinal+1, turn+1, done+1, i+1)
		out.Calls, out.Stop = append(out.Calls, model.NewCall(id, c.Tool, c.args)), model.StopCalls
	}
	for word := range strings.SplitAfterSeq(s.Text, " ") {
		if word != "" {
			sink.Send(model.Delta{Text: word})
		}
	}
	return out, nil
}
