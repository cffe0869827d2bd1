package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// undone are the choices of undo.
type undone struct {
	all, dryRun, yes, only, force bool
	limit                         int
}

func (a *app) undoCmd() *cobra.Command {
	var u undone
	c := a.command(spec{
		use:   "undo [ID [PATH…]]",
		short: "take back what a call changed in a git work tree",
		long: `Without an ID it lists what can be undone. With one it shows what would change, asks,
and brings the work tree back to what it was before that call: what the call and the
calls after it changed, and nothing that somebody else did. With paths, only those.

A file that somebody else changed since is not overwritten unless --force is given. What
is there now is kept first, so an undo can be undone. Ignored files, the index, and what
git itself keeps are neither kept nor changed. The ID is that of the checkpoint, or of
a run with one checkpoint.`,
		example: "ombud undo\nombud undo chk_0197a3 --dry-run\nombud undo chk_0197a3\nombud undo chk_0197a3 src/main.go --yes\nombud undo chk_0197a3 --only",
		args:    cobra.ArbitraryArgs,
	}, func(ctx context.Context, args []string) error {
		if len(args) == 0 {
			if u.dryRun || u.yes || u.only || u.force {
				return fault.New(fault.Usage, "which call? an ID is needed").WithHint("ombud undo lists them")
			}
			return a.undoList(ctx, u)
		}
		return a.undo(ctx, u, args[0], args[1:])
	})
	c.Flags().BoolVar(&u.all, "all", false, "list also calls of which nothing was kept, and why")
	limitFlag(c.Flags(), &u.limit, 1000, "how many to list (default 20, at most 1000)")
	c.Flags().BoolVar(&u.dryRun, "dry-run", false, "only show what would change")
	c.Flags().BoolVar(&u.only, "only", false, "only what this call changed, not the calls after it")
	c.Flags().BoolVar(&u.force, "force", false, "also files that somebody else changed since")
	c.Flags().BoolVar(&u.yes, "yes", false, "do not ask")
	return c
}

func (a *app) undoList(ctx context.Context, u undone) error {
	res, err := a.client.UndoList(ctx, wire.UndoListRequest{Limit: u.limit, All: u.all})
	if err != nil {
		return err
	}
	return a.show("undo-list/1", res, func(p *page) {
		if len(res.Checkpoints) == 0 {
			p.line("nothing to undo")
			return
		}
		t := table{head: []string{"CHECKPOINT", "WHEN", "TOOL", "RUN", "FILES", "NOW", "WHAT"}}
		for _, x := range res.Checkpoints {
			t.add(x.ID, p.clock(x.At), x.Tool, x.RunID, fmt.Sprint(x.Files), checkpointNow(x), short(x.Summary, 60))
		}
		const now = 5
		t.tint = func(row, col int, cell string) string {
			if x := res.Checkpoints[row]; col == now && (x.ChangedSince > 0 || x.Why != "" || x.State == "open") {
				return p.warn(cell)
			}
			return cell
		}
		p.table(t)
		for _, x := range res.Checkpoints {
			if x.Why != "" {
				p.line("%s", p.faint(x.ID+": "+oneLine(x.Why)))
			}
		}
	})
}

// checkpointNow is what has become of a checkpoint, in a word or two.
func checkpointNow(x wire.Checkpoint) string {
	switch {
	case x.State == "none":
		return "not kept"
	case x.Undone:
		return "undone"
	case x.State == "open":
		return "open"
	case x.ChangedSince > 0:
		return fmt.Sprintf("%d changed since", x.ChangedSince)
	case x.Why != "":
		return "see below"
	}
	return "-"
}

func (a *app) undo(ctx context.Context, u undone, id string, args []string) error {
	paths, err := absolute(args)
	if err != nil {
		return err
	}
	if id, err = a.checkpointOf(ctx, id); err != nil {
		return err
	}
	plan, err := a.client.UndoShow(ctx, wire.UndoShowRequest{ID: id, Paths: paths, Only: u.only})
	if err != nil {
		return err
	}
	if u.dryRun {
		return a.show("undo-show/1", plan, func(p *page) { undoPage(p, plan) })
	}
	refused := refusedFiles(plan, u.force)
	if !a.json && (!u.yes || len(refused) > 0) {
		p := &page{style: a.style, now: a.now()}
		undoPage(p, plan)
		if _, err := a.stderr.Write(p.buf.Bytes()); err != nil {
			return outputFault(err)
		}
	}
	if len(plan.Changes) == 0 {
		return a.show("undo/1", wire.UndoRestoreResult{}, func(p *page) { p.line("nothing to undo: the files are as they were") })
	}
	if len(refused) > 0 {
		return fault.New(fault.Conflict, "nothing was changed: somebody else changed %s since", strings.Join(refused, ", ")).
			WithHint("name the files to undo, or use --force: what is there now is kept and can be had back")
	}
	if err := a.confirmUndo(u.yes); err != nil {
		return err
	}
	res, err := a.client.UndoRestore(ctx, wire.UndoRestoreRequest{ID: plan.Checkpoint.ID, Paths: paths, Only: u.only, Force: u.force})
	if err != nil {
		return err
	}
	return a.show("undo/1", res, func(p *page) {
		p.line("%s brought back, %s taken away", plural(int64(res.Restored), "file"), plural(int64(res.Removed), "file"))
		for _, l := range res.Left {
			p.line("%s", p.warn("left as it is: "+oneLine(l)))
		}
		if res.CheckpointID != "" {
			p.line("%s", p.faint("take this back with: ombud undo "+oneLine(res.CheckpointID)))
		}
	})
}

// refusedFiles names the files that keep an undo from being made.
func refusedFiles(plan wire.UndoShowResult, force bool) (out []string) {
	for _, c := range plan.Changes {
		if c.Conflict != "" && c.Never == "" && !force {
			out = append(out, oneLine(c.Path))
		}
	}
	const most = 10
	if n := len(out); n > most {
		out = append(out[:most], fmt.Sprintf("and %d more", n-most))
	}
	return out
}

func (a *app) confirmUndo(yes bool) error {
	if yes {
		return nil
	}
	if !isTerminal(a.stdin) {
		return fault.New(fault.Usage, "an undo is confirmed on a terminal, or with --yes")
	}
	fmt.Fprint(a.stderr, "undo? [y/N] ")
	line, err := bufio.NewReader(a.stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err != nil || answer != "y" && answer != "yes" {
		return fault.New(fault.Cancelled, "nothing was undone")
	}
	return nil
}

// checkpointOf takes the id of a run for that of its one checkpoint.
func (a *app) checkpointOf(ctx context.Context, id string) (string, error) {
	if !strings.HasPrefix(id, "run_") {
		return id, nil
	}
	got, err := a.client.RunsGet(ctx, wire.RunsGetRequest{ID: id})
	if err != nil {
		return "", err
	}
	var found []string
	for _, s := range got.Steps {
		for _, x := range s.Kept {
			if x.State != "none" {
				found = append(found, x.ID)
			}
		}
	}
	switch len(found) {
	case 0:
		return "", fault.New(fault.NotFound, "%s has no checkpoint", got.Run.ID).WithHint("ombud explain %s says what it did", got.Run.ID)
	case 1:
		return found[0], nil
	}
	return found[0], fault.New(fault.Invalid, "%s has %d checkpoints", got.Run.ID, len(found)).
		WithHint("ombud undo %s takes all of it back", found[0])
}

// undoPage shows what an undo would do, as a diff stat.
func undoPage(p *page, plan wire.UndoShowResult) {
	x := plan.Checkpoint
	p.line("%s  %s", p.strong(oneLine(x.ID)), oneLine(x.Summary))
	p.field("by", oneLine(x.Tool+" for "+x.Subject+", "+x.RunID))
	p.field("at", p.clock(x.At))
	p.field("work tree", oneLine(x.Repository))
	for _, o := range plan.Also {
		p.field("also undoes", oneLine(o.ID+"  "+o.Summary+" ("+o.Subject+")"))
	}
	for _, b := range plan.Busy {
		p.field("at work", p.warn(oneLine(b)))
	}
	width, added, removed := 0, 0, 0
	for _, c := range plan.Changes {
		width = max(width, len(oneLine(c.Path)))
	}
	for _, c := range plan.Changes {
		lines := p.good(fmt.Sprintf("+%d", c.Added)) + " " + p.bad(fmt.Sprintf("-%d", c.Removed))
		if c.Binary {
			lines = "binary"
		}
		p.line("  %s %s %s", pad(c.What, 8), pad(oneLine(c.Path), width+1), lines)
		if why := c.Never; why != "" {
			p.line("           %s", p.warn("stays: "+oneLine(why)))
		} else if c.Conflict != "" {
			p.line("           %s", p.warn("only with --force: "+oneLine(c.Conflict)))
		}
		added, removed = added+c.Added, removed+c.Removed
	}
	p.line("%s, +%d -%d", plural(int64(len(plan.Changes)), "file"), added, removed)
	if plan.Others > 0 {
		p.line("%s", p.faint(plural(int64(plan.Others), "file")+" that others changed since stay as they are"))
	}
	for i, n := range x.NotKept {
		if i == maxNotKept {
			p.line("%s", p.faint(fmt.Sprintf("and %d more files were not kept", len(x.NotKept)-i)))
			break
		}
		p.line("%s", p.faint("not kept: "+oneLine(n.Path)+": "+oneLine(n.Why)))
	}
}

const maxNotKept = 5

// absolute makes paths absolute and follows the links of their directories, as far
// as these exist: the daemon knows a work tree by its real name. A name that JSON
// cannot hold is quoted.
func absolute(args []string) ([]string, error) {
	var out []string
	for _, arg := range args {
		full, err := filepath.Abs(arg)
		if err != nil {
			return nil, fault.New(fault.Usage, "%s: %w", arg, err)
		}
		rest := filepath.Base(full)
		dir := filepath.Dir(full)
		for {
			real, err := filepath.EvalSymlinks(dir)
			if err == nil {
				full = filepath.Join(real, rest)
				break
			}
			if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
				break
			}
			rest, dir = filepath.Join(filepath.Base(dir), rest), filepath.Dir(dir)
		}
		if info, err := os.Lstat(full); err == nil && info.IsDir() {
			if real, err := filepath.EvalSymlinks(full); err == nil {
				full = real
			}
		}
		out = append(out, quotedPath(filepath.ToSlash(full)))
	}
	return out, nil
}

// quotedPath writes a path that is no text in quotes, its odd bytes in octal.
func quotedPath(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b.WriteString("\\" + string(rune(c)))
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// keptDetails tells in an explanation what was kept before a call.
func (p *page) keptDetails(m *moment, kept []wire.Checkpoint) {
	for _, x := range kept {
		switch {
		case x.State == "none":
			m.below = append(m.below, p.warn("no checkpoint of "+oneLine(x.Repository)+": "+oneLine(x.Why)))
		case x.Why != "":
			m.below = append(m.below, p.warn(oneLine(x.ID+": "+x.Why)))
		default:
			m.below = append(m.below, fmt.Sprintf("changed %s of %s", plural(int64(x.Files), "file"), oneLine(x.Repository)))
			m.below = append(m.below, p.faint("take it back with: ombud undo "+oneLine(x.ID)))
		}
	}
}
