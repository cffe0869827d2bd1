package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// askResult is the answer of `ask --json`, `approve --json` and, one a line, of
// `chat --json`.
type askResult struct {
	EventID      string `json:"event_id,omitempty"`
	Conversation string `json:"conversation,omitempty"`
	Notice       string `json:"notice,omitempty"` // the answer to a control message, which has no turn
	wire.TurnResult
}

type askFlags struct {
	conversation string
	timeout      time.Duration
	stream       string
}

func (a *app) askCmd() *cobra.Command {
	var f askFlags
	c := a.command(spec{
		use:   "ask TEXT…",
		short: "say something and wait for the reply",
		long: `Sends a message and shows the reply. "-" reads it from standard input. A daemon is
started if none runs. Ctrl-C cancels the turn.

When a call needs your approval, its id and the command that approves it are
printed and ask exits 75; the turn goes on once you have decided. With --timeout
ask stops waiting and exits 4; the turn itself goes on.`,
		example: `ombud ask "what is the boiler code?"
ombud ask --conversation work - < question.txt
ombud ask --json "remind me at 18:00 to call Anna" | jq -r .reply`,
		args:          cobra.ArbitraryArgs,
		keepInterrupt: true,
	}, func(ctx context.Context, args []string) error {
		text, err := a.message(args)
		if err != nil {
			return err
		}
		return a.ask(ctx, f, text)
	})
	c.Flags().StringVarP(&f.conversation, "conversation", "c", "main", "which conversation")
	c.Flags().DurationVar(&f.timeout, "timeout", 0, "how long to wait for the reply, e.g. 30s (default: until the turn ends)")
	a.streamFlag(c, &f.stream)
	return c
}

func (a *app) streamFlag(c *cobra.Command, to *string) {
	c.Flags().StringVar(to, "stream", "auto", "show the reply while it is written: always, never, auto (on a terminal)")
}

// message returns what is to be sent.
func (a *app) message(args []string) (string, error) {
	text := strings.Join(args, " ")
	if text == "-" || (len(args) == 0 && !isTerminal(a.stdin)) {
		data, err := io.ReadAll(io.LimitReader(a.stdin, maxText+1))
		if err != nil {
			return "", fault.New(fault.Unavailable, "read standard input: %w", err)
		}
		text = strings.TrimRight(string(data), "\r\n")
	}
	switch {
	case strings.TrimSpace(text) == "":
		return "", fault.New(fault.Usage, "there is nothing to ask").WithHint(`ombud ask "what can you do?"`)
	case len(text) > maxText:
		return "", fault.New(fault.Usage, "the message is longer than %s", size(maxText)).
			WithHint("put it into a file in the workspace and ask about that")
	case !utf8.ValidString(text):
		return "", fault.New(fault.Usage, "the message is not UTF-8 text")
	}
	return text, nil
}

func (a *app) streams(choice string) (bool, error) {
	switch choice {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto":
		return isTerminal(a.stdout), nil
	}
	return false, fault.New(fault.Usage, "--stream %q is none of always, never, auto", choice)
}

func (a *app) ask(ctx context.Context, f askFlags, text string) error {
	stream, err := a.streams(f.stream)
	if err != nil {
		return err
	}
	if f.timeout < 0 {
		return fault.New(fault.Usage, "--timeout %s is negative", f.timeout)
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, fault.New(fault.Timeout, "no reply within %s; the turn goes on", span(f.timeout)).
			WithHint("ombud explain last"))
		defer cancel()
	}
	started, err := a.ensure(ctx)
	if err != nil {
		return err
	}
	if !started {
		if err := a.greet(ctx); err != nil {
			return err
		}
	}
	sent, err := a.send(ctx, f.conversation, text)
	if err != nil {
		return err
	}
	res := askResult{EventID: sent.EventID, Conversation: sent.Conversation, Notice: sent.Notice}
	if sent.RunID == "" {
		return a.show("ask/1", res.ready(), func(p *page) { p.line("%s", sent.Notice) })
	}
	return a.await(ctx, res, sent.RunID, stream)
}

// ready fills the lists that JSON has to have.
func (r askResult) ready() askResult {
	if r.Approvals == nil {
		r.Approvals = []wire.TurnApproval{}
	}
	return r
}

// unseen is the error of a turn whose end was not seen. Without a daemon that is
// the same code as for a message that was not taken; a script that sent it again
// would have it done twice.
func unseen(err error, run string) error {
	switch {
	case fault.Is(err, fault.Cancelled):
		return err
	case fault.Is(err, fault.Timeout):
		return fault.New(fault.Timeout, "%w", err).WithHint("ombud explain %s", run)
	}
	return fault.New(fault.ClassOf(err), "%w; the turn is stored and goes on with the next daemon, so do not send it again", err).
		WithHint("ombud explain %s", run)
}

// await shows a turn to its end or to the first question. Ctrl-C cancels the
// turn, which then ends by itself; a second one only ends the waiting.
func (a *app) await(ctx context.Context, res askResult, run string, stream bool) error {
	interrupts := make(chan os.Signal, 2) // more in one instant mean nothing more
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	ctx, stop := a.cancelOn(ctx, interrupts, run)
	defer stop()
	out := &printer{w: a.stdout, stream: stream && !a.json}
	asked := &questions{}
	turn, err := a.watch(ctx, run, a.viewer(out, asked), out.pause)
	switch {
	case err == errAsked: //nolint:errorlint // it is ours and comes back as it is
		turn = wire.TurnResult{RunID: run, Outcome: "waiting"}
		turn.Approvals = asked.open
	case err != nil:
		out.pause()
		return unseen(err, run)
	}
	res.TurnResult = turn
	if a.json {
		if err := a.writeJSON("ask/1", res.ready()); err != nil {
			return err
		}
	} else if err := out.finish(turn.Reply); err != nil {
		return err
	}
	for _, q := range turn.Approvals {
		if !asked.told(q) && !a.json {
			a.tellQuestion(q)
		}
	}
	if n := len(turn.Approvals); n > 0 && turn.Outcome != "completed" {
		return waiting(n)
	}
	return turnError(turn)
}

// viewer shows the notes of a turn and ends the watch at a question.
func (a *app) viewer(out *printer, asked *questions) func(wire.TurnNote) error {
	last := ""
	return func(n wire.TurnNote) error {
		switch n := n.(type) {
		case wire.TurnDelta:
			out.delta(n.Text)
		case wire.TurnStatus:
			if (out.stream || n.Trouble) && n.Note != "" && n.Note != last {
				last = n.Note
				out.pause()
				a.note("· %s", oneLine(n.Note))
			}
		case wire.TurnApproval:
			out.pause()
			asked.open = append(asked.open, n)
			return errAsked
		}
		return nil
	}
}

// questions are the approvals that a turn was seen to ask for.
type questions struct {
	open  []wire.TurnApproval
	shown map[string]bool
}

// told reports whether a question was shown already, and takes it for shown.
func (q *questions) told(t wire.TurnApproval) bool {
	if q.shown[t.ID] {
		return true
	}
	if q.shown == nil {
		q.shown = map[string]bool{}
	}
	q.shown[t.ID] = true
	return false
}

// tellQuestion prints a question with the commands that answer it.
func (a *app) tellQuestion(q wire.TurnApproval) {
	fmt.Fprintf(a.stderr, "%s %s\n", a.style.warn("approval needed:"), oneLine(q.Summary))
	for _, line := range formOf(q.Form).Lines() {
		fmt.Fprintf(a.stderr, "  %s\n", oneLine(line))
	}
	fmt.Fprintf(a.stderr, "  yes: %s\n", a.approveWords(q.ID, q.Form))
	fmt.Fprintf(a.stderr, "  no:  %s --deny\n", a.approveWords(q.ID, nil))
}

// cancelOn asks the turn to stop at the first interrupt and ends the context at
// the second.
func (a *app) cancelOn(ctx context.Context, interrupts <-chan os.Signal, run string) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-interrupts:
			}
			if n > 0 {
				end(fault.New(fault.Cancelled, "interrupted; the turn may still be ending").WithHint("ombud runs show %s", run))
				return
			}
			a.note("cancelling…")
			if _, err := a.client.TurnCancel(ctx, wire.TurnCancelRequest{RunID: run}); err != nil {
				end(err)
				return
			}
		}
	}()
	return ctx, func() {
		end(nil)
		<-done
	}
}
