package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/form"
	"github.com/ombud-run/ombud/internal/wire"
)

// errUnapproved is the end of a form that was not filled in to its end.
var errUnapproved = fault.New(fault.Cancelled, "nothing was approved; the question is still open")

// formOf is the form of a question, which asks nothing where there is none. A form that
// this program does not know is answered with --answer alone.
func formOf(w *wire.ApprovalForm) form.Form {
	if w == nil {
		return form.Form{}
	}
	f, err := form.Parse(w.Schema)
	if err != nil {
		return form.Form{}
	}
	return f
}

// approveWords is the command that approves a question, as it can be typed: with words in
// capitals for what has to be filled in.
func (a *app) approveWords(id string, w *wire.ApprovalForm) string {
	flag := ""
	if a.instance != "" {
		flag = "--instance " + a.where.Name + " "
	}
	words := "ombud " + flag + "approve " + id
	if f := formOf(w); len(f.Missing()) > 0 {
		words += " " + strings.Join(f.Example(), " ")
	}
	return words
}

// formFields tells what there is to fill in.
func (p *page) formFields(w *wire.ApprovalForm) {
	name := "  fill in"
	for _, line := range formOf(w).Lines() {
		p.field(name+" ", line)
		name = ""
	}
}

// answerOf is the answer that a command line gives to a question: nil if it gives none.
// What does not fit is said before anything is sent.
func (a *app) answerOf(ctx context.Context, id string, words []string, raw string, given bool) (json.RawMessage, error) {
	switch {
	case given && len(words) > 0:
		return nil, fault.New(fault.Usage, "--answer and FIELD=VALUE exclude each other")
	case given:
		if !json.Valid([]byte(raw)) {
			return nil, fault.New(fault.Usage, "--answer is not JSON").WithHint(`for example --answer '{"name": "Ada"}'`)
		}
		return json.RawMessage(raw), nil
	case len(words) > 0:
		q, err := a.openApproval(ctx, id)
		if err != nil {
			return nil, err
		}
		if q.Form == nil {
			return nil, fault.New(fault.Usage, "%s has nothing to fill in", q.ID).WithHint("ombud approve %s", q.ID)
		}
		answer, err := formOf(q.Form).Words(words)
		return answer, a.withExample(err, q)
	}
	ask := a.asker()
	if !ask.can() {
		return nil, nil
	}
	q, err := a.openApproval(ctx, id)
	if err != nil || q.Form == nil {
		if fault.Is(err, fault.NotFound) { // the daemon says better what it is
			err = nil
		}
		return nil, err
	}
	return ask.fill(formOf(q.Form), oneLine(q.Summary))
}

// withExample adds to an answer that does not fit how one is written.
func (a *app) withExample(err error, q wire.Approval) error {
	if !fault.Is(err, fault.Invalid) || q.Form == nil {
		return err
	}
	hint := a.approveWords(q.ID, q.Form)
	if own := fault.HintOf(err); own != "" {
		hint = own + "; " + hint
	}
	return fault.New(fault.Invalid, "%w", err).WithHint("%s", hint)
}

// unanswered says of a plain yes that the daemon did not take what is to be filled in.
func (a *app) unanswered(ctx context.Context, id string, err error) error {
	if !fault.Is(err, fault.Invalid) {
		return err
	}
	q, e := a.openApproval(ctx, id)
	if e != nil {
		return err
	}
	for _, line := range formOf(q.Form).Lines() {
		a.note("  %s", line)
	}
	return a.withExample(err, q)
}

// fill asks a person for the fields of a form, one by one.
func (q *asker) fill(f form.Form, summary string) (json.RawMessage, error) {
	if summary != "" {
		q.a.note("%s", summary)
	}
	return fillIn(f, q.a.note, func(question string) (string, error) {
		fmt.Fprint(q.a.stderr, question+" ")
		line, err := readLine(q.lines)
		if err != nil {
			fmt.Fprintln(q.a.stderr)
		}
		return line, err
	})
}

// readLine is the next line; io.EOF if there is none.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err == io.EOF && line != "" { //nolint:errorlint // a reader gives it as it is
		err = nil
	}
	return strings.TrimRight(line, "\r\n"), err
}

// fillIn asks for the fields of a form, one by one and each until it fits. An empty line
// leaves a field as it is, where it need not be filled in. The words are a stranger's, and
// what is filled in is shown on the screen: so nothing secret belongs there.
func fillIn(f form.Form, note func(string, ...any), next func(question string) (string, error)) (json.RawMessage, error) {
	if len(f.Fields) == 0 {
		return json.RawMessage("{}"), nil
	}
	note("what you fill in is told to whoever asks; give no password and no key; Ctrl-C or Ctrl-D approves nothing")
	var words []string
	for _, x := range f.Fields {
		note("%s", x.Line())
		question := x.Name + ":"
		if preset := x.Preset(); preset != "" {
			question = x.Name + " [" + preset + "]:"
		}
		for {
			text, err := next(question)
			switch {
			case errors.Is(err, io.EOF):
				return nil, errUnapproved
			case err != nil:
				return nil, err
			}
			if text == "" && (x.Default != nil || !x.Required) {
				break
			}
			if err := x.Try(text); err != nil {
				note("%s", err.Error())
				continue
			}
			words = append(words, x.Name+"="+text)
			break
		}
	}
	return f.Words(words)
}
