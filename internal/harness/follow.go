package harness

// StepKind says what a Step is about.
type StepKind string

// The kinds of step.
const (
	StepSession   StepKind = "session"    // the session's id is known
	StepText      StepKind = "text"       // the agent said something
	StepToolBegan StepKind = "tool_began" // a tool was called
	StepToolEnded StepKind = "tool_ended" // and has a result
	StepUsage     StepKind = "usage"      // more is known of what was used
)

// Step is a piece of news of a run, as its record books it.
type Step struct {
	Kind    StepKind
	Session string
	Text    string // what was said; it may be a piece, or long
	Tool    Tool   // as it is known by now
	Model   string // of StepUsage
	Usage   Usage  // so far
	Cost    Cost   // so far, where the CLI tells it while it works
}

// Follow lets see be told each step while Write or Close books it. Call it before
// the first Write.
func (d *Decoder) Follow(see func(Step)) { d.book.see = see }

// Ended reports whether the run's closing record has been read and nothing since took
// it back. Some CLIs go on after one: only the end of the process is the end.
func (d *Decoder) Ended() bool { return d.book.closed }

// tell tells a step to whoever follows.
func (b *book) tell(s Step) {
	if b.see != nil {
		b.see(s)
	}
}

// tellUse tells what was used so far.
func (b *book) tellUse() {
	u := b.rec.Usage
	u.Known = true
	u.add(b.seen)
	b.tell(Step{Kind: StepUsage, Model: b.rec.Model, Usage: u, Cost: Cost{Known: b.priced, Cumulative: b.rec.Cost.Cumulative, MicroUSD: micro(b.nanoUSD)}})
}

// said tells a text that was said, unless it is the one said last, which closing
// records repeat.
func (b *book) said(text string) {
	if text != "" && text != string(b.text) {
		b.tell(Step{Kind: StepText, Text: text})
	}
}

// anyACP reads an agent that speaks nothing but the Agent Client Protocol.
type anyACP struct{ acp }

func (*anyACP) settle(*book, Exit) {}
