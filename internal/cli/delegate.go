package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/wire"
)

// delegating are the choices of delegate.
type delegating struct {
	req    wire.DelegateRequest
	dryRun bool
	limit  time.Duration
}

func (a *app) delegateCmd() *cobra.Command {
	var g delegating
	c := a.command(spec{
		use:   "delegate [HARNESS] TASK",
		short: "give a task to a coding agent: claude, codex, gemini, opencode, pi",
		long: `The agent works in the current directory and only reads there. With --write it works in a
git worktree of its own, made from HEAD: what it changed comes back as a patch, which
ombud delegate apply puts into the repository. It asks before it changes or runs
something; the questions are shown here, and ombud approve answers them.

It is ended with the daemon, and goes on at the next start by its session. Ctrl-C leaves
it working; ombud runs cancel ends it.`,
		example: "ombud delegate claude \"what does this repository do?\"\nombud delegate codex --write --check \"go test ./...\" \"fix the failing test\"\n" +
			"ombud delegate --dry-run claude \"add a flag\"\nombud delegate --session ses_0197a3 \"and now its documentation\"\nombud delegate list\nombud delegate apply run_0197a3",
		args: cobra.RangeArgs(1, 2),
	}, func(ctx context.Context, args []string) error { return a.delegate(ctx, g, args) })
	f := c.Flags()
	f.StringVar(&g.req.Model, "model", "", "a model of the harness's own vendor")
	f.StringVar(&g.req.Dir, "dir", "", "where it works (default: here)")
	f.BoolVar(&g.req.Write, "write", false, "it may change files, in a git worktree of its own")
	f.StringVar(&g.req.Session, "session", "", "go on with the session of an earlier task")
	f.BoolVar(&g.req.Background, "background", false, "do not wait; its end is told in the conversation main")
	f.BoolVar(&g.req.Ephemeral, "ephemeral", false, "delete afterwards what the program remembers of it")
	f.DurationVar(&g.limit, "timeout", 0, "how long it may work, at most delegate.timeout of the configuration")
	f.StringArrayVar(&g.req.Tools, "tool", nil, "a tool of ombud it may use, such as memory.recall or fs.*; repeat for more")
	f.StringArrayVar(&g.req.Checks, "check", nil, "a command that is run where it wrote, afterwards; repeat for more")
	f.StringVar(&g.req.Allow, "allow", "", "what it may do there without asking: edits, or all")
	f.BoolVar(&g.dryRun, "dry-run", false, "only show the route, what it needs and what it may cost")
	c.AddCommand(a.delegateListCmd(), a.delegateShowCmd(), a.delegateDiffCmd(), a.delegateApplyCmd(), a.delegateDropCmd())
	return c
}

// request is what is asked for.
func (g delegating) request(args []string) (wire.DelegateRequest, error) {
	req := g.req
	if len(args) == 2 {
		req.Harness = args[0]
	}
	req.Prompt, req.TimeoutS = args[len(args)-1], int(g.limit/time.Second)
	if g.limit < 0 || g.limit > 0 && req.TimeoutS == 0 {
		return req, fault.New(fault.Usage, "--timeout %s is no time of a second or more", g.limit)
	}
	if req.Session != "" && req.Dir == "" {
		return req, nil // where the session works
	}
	dir, err := os.Getwd()
	if err == nil && req.Dir != "" {
		dir, err = filepath.Abs(req.Dir)
	}
	if err != nil {
		return req, fault.New(fault.NotFound, "the directory to work in: %w", err)
	}
	req.Dir = dir
	return req, nil
}

func (a *app) delegate(ctx context.Context, g delegating, args []string) error {
	req, err := g.request(args)
	if err != nil {
		return err
	}
	if _, err := a.ensure(ctx); err != nil {
		return err
	}
	if g.dryRun {
		plan, err := a.client.DelegatePlan(ctx, req)
		if err != nil {
			return err
		}
		return a.show("delegate-plan/1", plan, func(p *page) { planPage(p, plan) })
	}
	got, err := a.delegateStart(ctx, req)
	if err != nil {
		return err
	}
	if req.Background {
		return a.show("delegate/1", got, func(p *page) {
			p.line("%s works on it as %s in session %s", oneLine(got.Route), got.RunID, got.SessionID)
			p.line("%s", p.faint("ombud delegate show "+got.RunID+" shows how it stands; its end is told in the conversation main"))
		})
	}
	a.note("%s works on it as %s", oneLine(got.Route), got.RunID)
	return a.delegateWait(ctx, got.RunID)
}

// delegateStart gives a task. Its key makes it one task however often it has to be sent:
// when the daemon is lost before it answered, another one is found or started and asked.
func (a *app) delegateStart(ctx context.Context, req wire.DelegateRequest) (got wire.DelegateResult, err error) {
	req.Key = id.New("cli")
	taken := false // perhaps: it went out and nothing came back
	err = a.persist(ctx, func() (err error) {
		got, err = a.client.DelegateStart(ctx, req)
		taken = taken || isLost(err) && !errors.Is(err, wire.ErrNoDaemon)
		return err
	})
	if err != nil && taken {
		err = fault.New(fault.ClassOf(err), "%w; whether the task was begun is not known", err).WithHint("look at ombud delegate list before you give it again")
	}
	return got, err
}

// delegateWait shows what a delegation asks, and in the end what it came to.
func (a *app) delegateWait(ctx context.Context, run string) error {
	var seen []string
	ask := a.asker()
	for {
		var now wire.DelegateWaitResult
		err := a.persist(ctx, func() (err error) {
			now, err = a.client.DelegateWait(ctx, wire.DelegateWaitRequest{RunID: run, Seen: seen, WaitS: 30})
			return err
		})
		if err != nil {
			if untilInterrupted(ctx, err) != nil {
				return err
			}
			a.note("it works on: ombud delegate show %s shows how it stands, ombud runs cancel %s ends it", run, run)
			return nil
		}
		for _, q := range now.Questions {
			seen = append(seen, q.ApprovalID)
			if err := a.ownQuestion(ctx, ask, q); err != nil {
				return err
			}
		}
		if now.Ended {
			return a.delegateEnd(ctx, run)
		}
	}
}

// ownQuestion asks a question of a coding agent here, if somebody is here.
func (a *app) ownQuestion(ctx context.Context, ask *asker, q wire.DelegateQuestion) error {
	a.note("approval needed: %s", oneLine(q.Summary))
	f := formOf(q.Form)
	if !ask.can() {
		for _, line := range f.Lines() {
			a.note("  %s", line)
		}
		a.note("%s, or %s --deny", a.approveWords(q.ApprovalID, q.Form), a.approveWords(q.ApprovalID, nil))
		return nil
	}
	req := wire.ApprovalsResolveRequest{ID: q.ApprovalID, Decision: wire.Deny}
	if ask.yes("allow it?") {
		req.Decision = wire.Approve
		if q.Form != nil {
			answer, err := ask.fill(f, "")
			if errors.Is(err, errUnapproved) {
				a.note("left open: %s", a.approveWords(q.ApprovalID, q.Form))
				return nil
			}
			if err != nil {
				return err
			}
			req.Answer = answer
		}
	}
	_, err := a.client.ApprovalsResolve(ctx, req)
	if fault.Is(err, fault.Conflict) {
		a.note("it was decided meanwhile")
		return nil
	}
	return err
}

func (a *app) delegateEnd(ctx context.Context, run string) error {
	res, err := a.client.DelegateShow(ctx, wire.DelegateShowRequest{RunID: run})
	if err != nil {
		return err
	}
	if err := a.show("delegation/1", res, func(p *page) { delegationPage(p, res, false) }); err != nil {
		return err
	}
	return delegationError(res)
}

// delegationError is how a delegation that did not complete ends a command.
func delegationError(res wire.DelegateShowResult) error {
	who, why, class := res.Delegation.Harness, oneLine(res.Error), fault.Class(res.ErrorClass)
	if why == "" {
		why = "it did not say why"
	}
	hint := "ombud explain " + res.Delegation.RunID
	switch res.Delegation.Outcome {
	case "completed":
		return nil
	case "cancelled":
		return fault.New(fault.Cancelled, "the task was cancelled").WithHint("%s", hint)
	case "killed":
		return fault.New(fault.Timeout, "%s was ended: %s", who, why).WithHint("go on with it: ombud delegate --session %s; %s tells what it did", res.Delegation.SessionID, hint)
	case "auth":
		return fault.New(fault.Unavailable, "%s is not let in by its API: %s", who, why).WithHint("check its key or login: ombud harness probe %s", who)
	case "limit":
		return fault.New(fault.Denied, "%s stopped at a limit: %s", who, why).WithHint("raise it (delegate.usd, budget), and go on: ombud delegate --session %s", res.Delegation.SessionID)
	case "denied":
		return fault.New(fault.Denied, "%s was refused: %s", who, why).WithHint("%s", hint)
	case "unavailable":
		return fault.New(fault.Unavailable, "%s did not complete the task: %s", who, why).WithHint("go on later: ombud delegate --session %s", res.Delegation.SessionID)
	}
	if class == "" {
		class = fault.Unavailable
	}
	return fault.New(class, "%s did not complete the task: %s", who, why).WithHint("%s", hint)
}

func (a *app) delegateListCmd() *cobra.Command {
	var req wire.DelegateListRequest
	c := a.command(spec{
		use: "list", short: "tasks that were given to coding agents, newest first, and the worktrees there are", example: "ombud delegate list",
	},
		func(ctx context.Context, _ []string) error {
			req.Worktrees = true
			res, err := a.client.DelegateList(ctx, req)
			if err != nil {
				return err
			}
			return a.show("delegate-list/1", res, func(p *page) {
				delegationsTable(p, res.Delegations)
				worktreesTable(p, res.Worktrees)
			})
		})
	limitFlag(c.Flags(), &req.Limit, 1000, "how many to list (default 20, at most 1000)")
	return c
}

func (a *app) delegateShowCmd() *cobra.Command {
	return a.command(spec{
		use: "show RUN", short: "one task, with what the agent used, changed and said", example: "ombud delegate show run_0197a3", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.DelegateShow(ctx, wire.DelegateShowRequest{RunID: args[0]})
		if err != nil {
			return err
		}
		return a.show("delegation/1", res, func(p *page) { delegationPage(p, res, true) })
	})
}

func (a *app) delegateDiffCmd() *cobra.Command {
	return a.command(spec{
		use: "diff RUN", short: "the patch of a task that wrote", example: "ombud delegate diff run_0197a3 | git apply --check", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.DelegateShow(ctx, wire.DelegateShowRequest{RunID: args[0]})
		if err != nil {
			return err
		}
		if res.Patch == "" {
			return fault.New(fault.NotFound, "%s has changed nothing", res.Delegation.RunID)
		}
		if res.PatchCut {
			a.note("the patch is not whole: git -C %s diff shows the rest", oneLine(res.Worktree))
		}
		if a.json {
			return a.show("delegate-diff/1", res, func(*page) {})
		}
		text := res.Patch
		if res.PatchBase64 != "" {
			raw, err := base64.StdEncoding.DecodeString(res.PatchBase64)
			if err != nil {
				a.note("the patch holds a secret, which is hidden: it is shown as text and cannot be applied by git")
			} else {
				text = string(raw)
			}
		}
		if isTerminal(a.stdout) {
			text = guard.CleanText(text) // a file can hold what a terminal obeys
		}
		if _, err := a.stdout.Write([]byte(text)); err != nil {
			return outputFault(err)
		}
		return nil
	})
}

func (a *app) delegateApplyCmd() *cobra.Command {
	return a.command(spec{
		use: "apply RUN", short: "put what a task changed into the repository it worked from",
		long:    "All of the patch or nothing. What is there is kept first: ombud undo takes it back.",
		example: "ombud delegate apply run_0197a3", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.DelegateApply(ctx, wire.DelegateShowRequest{RunID: args[0]})
		if err != nil {
			return err
		}
		return a.show("delegate-apply/1", res, func(p *page) {
			p.line("%s changed in %s", plural(int64(res.Files), "file"), oneLine(res.Repository))
			p.line("%s", p.faint("take this back with: ombud undo "+res.RunID))
		})
	})
}
