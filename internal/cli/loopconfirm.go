package cli

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/wire"
)

// asker asks a person on a terminal, more than once.
type asker struct {
	a     *app
	lines *bufio.Reader // nil: there is nobody to ask
}

func (a *app) asker() *asker {
	q := &asker{a: a}
	if !a.json && isTerminal(a.stdin) {
		q.lines = bufio.NewReader(a.stdin)
	}
	return q
}

func (q *asker) can() bool { return q.lines != nil }

// line asks for one line, "" if nothing comes.
func (q *asker) line(question string) string {
	fmt.Fprint(q.a.stderr, guard.CleanText(question)+" ")
	line, err := q.lines.ReadString('\n')
	if err != nil && line == "" {
		fmt.Fprintln(q.a.stderr)
	}
	return strings.TrimSpace(line)
}

func (q *asker) yes(question string) bool {
	answer := strings.ToLower(q.line(question + " [y/N]"))
	return answer == "y" || answer == "yes"
}

var errNotInstalled = fault.New(fault.Cancelled, "nothing was installed")

// confirmInstall shows what would be installed and makes the approval of it, from what was
// said beforehand and what is answered now. Nothing is asked where nobody can answer: then
// what is lacking is the error.
func (a *app) confirmInstall(p wire.LoopPreview, f loopFile, i installing) (req wire.LoopInstallRequest, err error) {
	q := a.asker()
	if !a.json { // with --json the result alone is on standard output: ombud loop inspect shows the preview
		out := &page{style: a.style}
		previewPage(out, p, f.from)
		fmt.Fprint(a.stderr, out.buf.String())
	}
	req = wire.LoopInstallRequest{SHA256: p.SHA256, Downgrade: i.downgrade, Upgrade: i.upgrade, Disabled: i.disabled, From: f.from}
	if err := i.unsignedLines(p, q, &req); err != nil {
		return req, err
	}
	if p.Downgrade != "" && !i.downgrade {
		switch {
		case !q.can():
			return req, fault.New(fault.Denied, "%s", p.Downgrade).WithHint("--downgrade if you mean it")
		case !q.yes(p.Downgrade + ". Install it all the same?"):
			return req, errNotInstalled
		}
		req.Downgrade = true
	}
	typed, err := i.typedName(p, q, &req)
	if err != nil || typed || i.yes {
		return req, err
	}
	if !q.can() {
		return req, fault.New(fault.Usage, "an install is confirmed on a terminal, or with --yes").WithHint("ombud loop inspect %s shows what it may do", f.from)
	}
	if !q.yes("install " + p.Manifest.Name + " " + p.Manifest.Version + "?") {
		return req, errNotInstalled
	}
	return req, nil
}

// unsignedLines has each line confirmed that no signature covers.
func (i *installing) unsignedLines(p wire.LoopPreview, q *asker, req *wire.LoopInstallRequest) error {
	if i.unsigned {
		req.Unsigned = p.Unsigned
		return nil
	}
	if len(p.Unsigned) > 0 && !q.can() {
		return fault.New(fault.Denied, "no signature covers %d lines of %s, and they were not confirmed", len(p.Unsigned), p.Manifest.Name).
			WithHint("--accept-unsigned confirms them all; --yes does not")
	}
	for _, line := range p.Unsigned {
		if !q.yes("not signed: " + oneLine(line) + ". Accept it?") {
			return errNotInstalled
		}
		req.Unsigned = append(req.Unsigned, line)
	}
	return nil
}

// typedName has the name typed of a loop that nobody vouches for. Typed at the terminal it
// is the yes as well.
func (i *installing) typedName(p wire.LoopPreview, q *asker, req *wire.LoopInstallRequest) (typed bool, err error) {
	name := p.Manifest.Name
	switch {
	case i.name != "" && i.name != name:
		return false, fault.New(fault.Denied, "the loop is called %s, and --name says %s", name, oneLine(i.name)).WithHint("nothing was installed")
	case p.TypeName == "":
		return false, nil
	case i.name != "":
		req.Name = i.name
		return false, nil
	case !q.can():
		return false, fault.New(fault.Denied, "%s: %s, so its name has to be typed, also with --yes", name, p.TypeName).
			WithHint("--name %s if you mean it, or ombud loop trust", name)
	}
	req.Name = q.line(p.TypeName + ".\nType its name to install it all the same:")
	if req.Name != name {
		return false, errNotInstalled
	}
	return true, nil
}
