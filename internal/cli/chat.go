package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/form"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) chatCmd() *cobra.Command {
	var f askFlags
	c := a.command(spec{
		use:   "chat",
		short: "talk, line by line",
		long: `Reads a line, sends it, shows the reply, and so on. Ctrl-C cancels a turn; at the
prompt it ends the chat, as Ctrl-D does. Questions are asked right there: y or n,
Enter leaves one open; where there are fields to fill in, y asks for them, or takes
them as y FIELD=VALUE. Lines that begin with / are for ombud: /new forgets the
conversation so far, /status, /stop, /quit.`,
		example:       "ombud chat\nombud chat --conversation work",
		keepInterrupt: true,
	}, func(ctx context.Context, _ []string) error {
		stream, err := a.streams(f.stream)
		if err != nil {
			return err
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
		t := a.newDialogue(f.conversation, stream)
		defer t.close()
		return t.run(ctx)
	})
	c.Flags().StringVarP(&f.conversation, "conversation", "c", "main", "which conversation")
	a.streamFlag(c, &f.stream)
	return c
}

// dialogue is one chat. All of it happens on one goroutine but the reading of lines,
// which cannot be interrupted and ends with the process.
type dialogue struct {
	*app
	conversation string
	stream       bool
	prompts      bool // a person sits there
	lines        <-chan inputLine
	interrupts   chan os.Signal
}

type inputLine struct {
	text string
	err  error // io.EOF at the end
}

func (a *app) newDialogue(conversation string, stream bool) *dialogue {
	t := &dialogue{
		app: a, conversation: conversation, stream: stream,
		prompts:    isTerminal(a.stdin) && !a.json,
		lines:      readLines(a.stdin),
		interrupts: make(chan os.Signal, 1), // one is as good as many
	}
	signal.Notify(t.interrupts, os.Interrupt)
	return t
}

func (t *dialogue) close() { signal.Stop(t.interrupts) }

// readLines hands over one line at a time, so nothing is read ahead of need.
func readLines(r io.Reader) <-chan inputLine {
	out := make(chan inputLine)
	go func() {
		s := bufio.NewScanner(r)
		s.Buffer(make([]byte, 0, 64<<10), maxText)
		for s.Scan() {
			out <- inputLine{text: s.Text()}
		}
		err := s.Err()
		if err == nil {
			err = io.EOF
		}
		out <- inputLine{err: err}
	}()
	return out
}

// errLeave ends the chat as the person wanted.
var errLeave = fault.New(fault.Cancelled, "left")

// next returns the next line; errLeave at the end of input or at Ctrl-C.
func (t *dialogue) next(ctx context.Context, prompt string) (string, error) {
	if t.prompts {
		fmt.Fprint(t.stdout, prompt)
	}
	select {
	case <-ctx.Done():
		return "", whyEnded(ctx)
	case <-t.interrupts:
		t.endLine()
		return "", errLeave
	case l := <-t.lines:
		switch {
		case l.err == io.EOF: //nolint:errorlint // readLines says so itself
			t.endLine()
			return "", errLeave
		case l.err != nil:
			return "", fault.New(fault.Usage, "read a line: %w", l.err)
		}
		return l.text, nil
	}
}

func (t *dialogue) endLine() {
	if t.prompts {
		fmt.Fprintln(t.stdout)
	}
}

func (t *dialogue) run(ctx context.Context) error {
	line, have := "", false
	for {
		if !have {
			var err error
			if line, err = t.next(ctx, t.style.strong("> ")); err != nil {
				return leaving(err)
			}
		}
		have = false
		switch text := strings.TrimSpace(line); text {
		case "":
		case "/quit", "/exit":
			return nil
		default:
			left, err := t.say(ctx, text)
			if err == errLeave { //nolint:errorlint // it is ours
				return nil
			}
			if err != nil {
				if ctx.Err() != nil {
					return err
				}
				t.report(err)
			}
			if left != "" {
				line, have = left, true
			}
		}
	}
}

// leaving turns the wish to leave into success.
func leaving(err error) error {
	if err == errLeave { //nolint:errorlint // it is ours
		return nil
	}
	return err
}

// say sends a message and shows its turn, asking the person what it asks. left
// is a line that was no answer to a question and so the next message.
func (t *dialogue) say(ctx context.Context, text string) (left string, err error) {
	sent, err := t.send(ctx, t.conversation, text)
	if err != nil {
		return "", err
	}
	res := askResult{EventID: sent.EventID, Conversation: sent.Conversation, Notice: sent.Notice}
	if sent.RunID == "" {
		return "", t.show("chat/1", res.ready(), func(p *page) { p.line("%s", sent.Notice) })
	}
	for run := sent.RunID; ; {
		turn, err := t.follow(ctx, run)
		if err != nil {
			return "", err
		}
		if t.json {
			res.TurnResult = turn
			return "", t.writeJSON("chat/1", res.ready())
		}
		next, line, err := t.settle(ctx, turn)
		if err != nil || next == "" {
			return line, err
		}
		run = next
	}
}

// follow shows a turn to its end or to a question. Ctrl-C cancels it.
func (t *dialogue) follow(ctx context.Context, run string) (wire.TurnResult, error) {
	ctx, stop := t.cancelOn(ctx, t.interrupts, run)
	defer stop()
	out := &printer{w: t.stdout, stream: t.stream && !t.json}
	asked := &questions{}
	turn, err := t.watch(ctx, run, t.viewer(out, asked), out.pause)
	if err == errAsked { //nolint:errorlint // it is ours
		return wire.TurnResult{RunID: run, Outcome: "waiting", Approvals: asked.open}, nil
	}
	if err != nil || t.json {
		out.pause()
		return turn, err
	}
	return turn, out.finish(turn.Reply)
}

// settle asks the person the questions of a turn. It returns the run that goes
// on, or a line that answers none of them.
func (t *dialogue) settle(ctx context.Context, turn wire.TurnResult) (run, left string, err error) {
	for _, q := range turn.Approvals {
		req, line, err := t.question(ctx, q)
		if err != nil {
			return "", "", err
		}
		if req.Decision == "" {
			t.note("left open: %s", t.approveWords(q.ID, q.Form))
			return "", line, nil
		}
		req.ID = q.ID
		res, err := t.client.ApprovalsResolve(ctx, req)
		if err != nil {
			return "", "", err
		}
		if res.RunID != "" {
			run = res.RunID
		}
	}
	if run == "" && len(turn.Approvals) == 0 {
		return "", "", turnError(turn)
	}
	return run, "", nil
}

// question asks until it has a yes, a no, or neither. Without a terminal a line
// that is neither is the next message.
func (t *dialogue) question(ctx context.Context, q wire.TurnApproval) (req wire.ApprovalsResolveRequest, line string, err error) {
	fmt.Fprintf(t.stdout, "%s %s\n", t.style.warn("approval needed:"), oneLine(q.Summary))
	f := formOf(q.Form)
	prompt := "allow it? y, n, or Enter to leave it open: "
	if len(f.Fields) > 0 {
		prompt = "allow it? y with what is to be filled in (" + strings.Join(f.Example(), " ") + "), y alone to be asked, n, or Enter to leave it open: "
		for _, line := range f.Lines() {
			fmt.Fprintf(t.stdout, "  %s\n", oneLine(line))
		}
	}
	for {
		line, err := t.next(ctx, prompt)
		if err != nil {
			return req, "", err
		}
		word, words, filled := strings.Cut(strings.TrimSpace(line), " ")
		switch strings.ToLower(word) {
		case "y", "yes":
			if filled && q.Form == nil {
				break // it is no answer
			}
			req.Answer, err = t.answer(ctx, q, f, words)
			switch {
			case fault.Is(err, fault.Invalid):
				t.report(err)
				if t.prompts {
					continue
				}
				return req, "", nil
			case err != nil:
				return req, "", err
			}
			req.Decision = wire.Approve
			return req, "", nil
		case "n", "no":
			if !filled {
				req.Decision = wire.Deny
				return req, "", nil
			}
		case "":
			return req, "", nil
		}
		if !t.prompts {
			return req, line, nil
		}
	}
}

// answer is what is filled in with a yes: in the words behind it, or asked for.
func (t *dialogue) answer(ctx context.Context, q wire.TurnApproval, f form.Form, words string) (json.RawMessage, error) {
	switch {
	case q.Form == nil:
		return nil, nil
	case words == "" && t.prompts:
		return fillIn(f, t.note, func(question string) (string, error) { return t.next(ctx, question+" ") })
	}
	return f.Words(form.Split(words))
}
