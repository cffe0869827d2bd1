package harness

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// book is a record being written, and what of it is not shown.
type book struct {
	rec       Record
	records   int // JSON objects seen
	notJSON   int // lines that were none
	begun     bool
	closed    bool
	verdict   verdict
	usageTold bool
	seen      Usage // of responses whose total was not told yet
	context   int64 // tokens the last response was made from
	nanoUSD   int64
	priced    bool
	text      []byte   // what was said last
	lastErr   string   // what was told last of an error it went on after
	writers   []writer // the tools of this CLI that change a file
	see       func(Step)
}

// verdict is what a closing record says.
type verdict struct {
	outcome Outcome
	reason  string
	status  int
	err     string
}

// writer is a tool that changes the file its input names.
type writer struct{ tool, key string }

// open says that the run goes on: a closing record before it does not count.
func (b *book) open() {
	b.begun, b.closed, b.verdict = true, false, verdict{}
}

// end takes a closing record. A later one replaces it.
func (b *book) end(v verdict) {
	v.reason, v.err = word(v.reason), b.cut(v.err, maxError, "error")
	b.begun, b.closed, b.verdict = true, true, v
}

func (b *book) session(id string) {
	had := b.rec.Session
	if set(&b.rec.Session, id); b.rec.Session != had {
		b.tell(Step{Kind: StepSession, Session: b.rec.Session})
	}
}
func (b *book) model(id string)  { set(&b.rec.Model, id) }
func (b *book) version(v string) { set(&b.rec.Version, v) }

func set(to *string, value string) {
	if value != "" {
		*to = word(value)
	}
}

// say sets what was said last.
func (b *book) say(text string) {
	b.said(text)
	b.text = b.text[:0]
	b.keep(text)
}

// add goes on with what was said last.
func (b *book) add(text string) {
	if text != "" {
		b.tell(Step{Kind: StepText, Text: text})
	}
	b.keep(text)
}

func (b *book) keep(text string) {
	if room := maxText - len(b.text); len(text) > room {
		b.warn(WarnCut, "text")
		text = fault.Cut(text, room)
	}
	b.text = append(b.text, text...)
}

// notice notes an error the CLI went on after.
func (b *book) notice(text string) {
	b.warn(WarnNotice, text)
	b.lastErr = b.cut(text, maxError, "error")
}

// call notes a tool call, or goes on with the one of the same id.
func (b *book) call(id, name, input string) {
	if t := b.find(id); t != nil {
		if input != "" && input != "{}" {
			b.input(t, input)
		}
		return
	}
	if len(b.rec.Tools) >= maxTools {
		b.rec.Omitted++
		return
	}
	t := Tool{ID: word(id), Name: word(name), Outcome: ToolUnfinished}
	b.input(&t, input)
	b.rec.Tools = append(b.rec.Tools, t)
	b.tell(Step{Kind: StepToolBegan, Tool: t})
}

// input sets what a tool was given. The file it names is read from the whole
// input, before the bound.
func (b *book) input(t *Tool, input string) {
	for _, w := range b.writers {
		if w.tool == t.Name {
			var keys map[string]json.RawMessage
			b.decode([]byte(input), &keys)
			t.path = b.cut(textOf(keys[w.key]), maxPath, "path")
		}
	}
	t.Input = b.cut(input, maxInput, "tool input")
}

// result notes what became of a call. A refusal stays one: the error that
// follows it says the same in other words.
func (b *book) result(id string, outcome ToolOutcome, output string) {
	t := b.find(id)
	if t == nil {
		return
	}
	if t.Outcome != ToolDenied {
		t.Outcome = outcome
	}
	t.Output = b.cut(output, maxOutput, "tool output")
	b.tell(Step{Kind: StepToolEnded, Tool: *t})
}

func (b *book) find(id string) *Tool {
	if id = word(id); id == "" {
		return nil
	}
	for i := len(b.rec.Tools) - 1; i >= 0; i-- { // the open ones are at the end
		if b.rec.Tools[i].ID == id {
			return &b.rec.Tools[i]
		}
	}
	return nil
}

// permission notes a leave asked for or decided. What is decided stays so.
func (b *book) permission(p Permission) {
	p.ToolID, p.Tool = word(p.ToolID), word(p.Tool)
	p.Input = b.cut(p.Input, maxInput, "permission input")
	if p.Decision == Refusal {
		if t := b.find(p.ToolID); t != nil {
			t.Outcome = ToolDenied
		}
	}
	for i := range b.rec.Permissions {
		if had := &b.rec.Permissions[i]; p.ToolID != "" && had.ToolID == p.ToolID {
			if had.Decision == Asked {
				had.Decision = p.Decision
			}
			return
		}
	}
	if len(b.rec.Permissions) >= maxTools {
		b.rec.Omitted++
		return
	}
	b.rec.Permissions = append(b.rec.Permissions, p)
}

// decided closes an asked permission, if there is one.
func (b *book) decided(toolID string, d Decision) {
	toolID = word(toolID)
	if slices.ContainsFunc(b.rec.Permissions, func(p Permission) bool { return p.ToolID == toolID }) {
		b.permission(Permission{ToolID: toolID, Decision: d})
	}
}

// touched notes a changed file once.
func (b *book) touched(path, kind string) {
	f := File{Path: b.cut(path, maxPath, "path"), Kind: word(kind)}
	if path == "" || slices.Contains(b.rec.Files, f) {
		return
	}
	if len(b.rec.Files) >= maxFiles {
		b.rec.Omitted++
		return
	}
	b.rec.Files = append(b.rec.Files, f)
}

// files adds the files of the writing tools that ended well.
func (b *book) files() {
	for _, t := range b.rec.Tools {
		if t.Outcome == ToolOK {
			b.touched(t.path, t.Name)
		}
	}
}

// spend adds money.
func (b *book) spend(c usd) {
	b.nanoUSD = clampAdd(b.nanoUSD, int64(c))
	if b.nanoUSD > 0 {
		b.priced = true // 0 is what a model without prices costs too
	}
}

func (b *book) money() {
	b.rec.Cost.Known = b.priced
	b.rec.Cost.MicroUSD = micro(b.nanoUSD)
}

func micro(nano int64) int64 { return nano/1000 + (nano%1000)/500 }

// spent adds tokens of a step; told replaces them by a total.
func (b *book) spent(u Usage) {
	b.rec.Usage.add(u)
	b.usageTold, b.context = true, u.Input+u.CacheRead+u.CacheWrite
	b.tellUse()
}

func (b *book) told(u Usage) {
	b.rec.Usage, b.usageTold = u, true
	b.tellUse()
}

// saw adds tokens of a response while the CLI works. What it tells of all its responses
// later takes their place.
func (b *book) saw(u Usage) {
	b.seen.add(u)
	if in := u.Input + u.CacheRead + u.CacheWrite; in > 0 {
		b.context = in
	}
	b.tellUse()
}

// partial is what was used of a run that did not come to tell all of it.
func (b *book) partial() {
	if b.seen != (Usage{}) {
		b.rec.Usage.add(b.seen)
		b.seen, b.usageTold, b.rec.Usage.Partial = Usage{}, true, true
	}
	if b.usageTold && !b.closed {
		b.rec.Usage.Partial = true
	}
	if b.rec.Usage.Partial {
		b.rec.Usage.Context = b.context
	}
}

// warn counts a warning.
func (b *book) warn(kind WarningKind, detail string) {
	if kind == WarnNotJSON {
		b.notJSON++
	}
	detail = word(detail)
	for i := range b.rec.Warnings {
		if w := &b.rec.Warnings[i]; w.Kind == kind && (w.Detail == detail || w.Detail == "…") {
			w.Count++
			return
		}
	}
	switch n := len(b.rec.Warnings); {
	case n >= 2*maxWarnings:
		return // every kind has its row by then
	case n >= maxWarnings:
		detail = "…" // the details are many; from here a kind is counted as one
	}
	b.rec.Warnings = append(b.rec.Warnings, Warning{Kind: kind, Detail: detail, Count: 1})
}

func (b *book) unknown(kind string) { b.warn(WarnUnknown, kind) }

// decode reads JSON into a typed value. A field of another type than known is
// left empty and counted: the rest of the record still counts.
func (b *book) decode(raw []byte, into any) {
	if len(raw) == 0 {
		return
	}
	var odd *json.UnmarshalTypeError
	if err := json.Unmarshal(raw, into); errors.As(err, &odd) {
		b.warn(WarnOddShape, odd.Field)
	}
}

// cut bounds a text and says so if it had to. The result shares no memory with
// a long line.
func (b *book) cut(text string, max int, what string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= max {
		return text
	}
	b.warn(WarnCut, what)
	return strings.Clone(fault.Cut(text, max))
}

// word bounds an id or a name.
func word(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > maxWord {
		text = strings.Clone(fault.Cut(text, maxWord))
	}
	return text
}

// colour is what a program writes to colour its text.
var colour = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]`)

// tail is the end of what a program wrote for a person: whole lines, without
// colours.
func tail(text string) string {
	if len(text) > maxError {
		text = text[len(text)-maxError:]
		if _, whole, is := strings.Cut(text, "\n"); is {
			text = whole
		}
	}
	return strings.TrimSpace(strings.ToValidUTF8(colour.ReplaceAllString(text, ""), ""))
}

// count is a number of tokens or turns: some CLIs write floats, and a negative
// or odd one counts nothing.
type count int64

func (c *count) UnmarshalJSON(raw []byte) error {
	*c = count(number(raw, 1))
	return nil
}

// usd is money in billionths of a dollar.
type usd int64

func (u *usd) UnmarshalJSON(raw []byte) error {
	*u = usd(number(raw, 1e9))
	return nil
}

// maxNumber is where a float stops being exact: nothing real is beyond it.
const maxNumber = 1 << 53

func number(raw []byte, scale float64) int64 {
	var f float64
	if json.Unmarshal(raw, &f) != nil || math.IsNaN(f) || f <= 0 {
		return 0
	}
	return int64(math.Round(min(f*scale, maxNumber)))
}

func clampAdd(a, b int64) int64 { return min(a+b, math.MaxInt64/2) }

// byStatus is what an HTTP status of the API means for the run.
func byStatus(status int) Outcome {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return Auth
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		return Unavailable
	case status >= 400:
		return Rejected
	}
	return Failed
}

// textOf is the text of a content: a string, or a list of blocks with texts.
func textOf(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var blocks []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &blocks) != nil {
		return string(raw)
	}
	var all []string
	for _, block := range blocks {
		if block.Type == "text" && block.Text != "" {
			all = append(all, block.Text)
		}
	}
	return strings.Join(all, "\n")
}
