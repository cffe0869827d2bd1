package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) capsCmd() *cobra.Command {
	list := a.capsListCmd()
	return byDefault(a.noun(spec{
		use:   "caps",
		short: "what may be done, by whom, and why",
		long: `What an agent may do is settled by its role in the configuration and by the tier of
whoever speaks to it. A grant here never gives more than both; it can ask, deny,
limit, or answer a question beforehand.`,
		example: "ombud caps why agent:main fs.write:/home/ana/notes.txt\nombud caps list agent:main",
	}, list, a.capsGrantCmd(), a.capsRevokeCmd(), a.capsWhyCmd(), a.capsMeterCmd()), list)
}

func (a *app) capsListCmd() *cobra.Command {
	var all, bases bool
	c := a.command(spec{
		use:     "list [SUBJECT]",
		short:   "roles and grants",
		long:    "A grant that can match nothing is shown as \"grants nothing\", with the reason.",
		example: "ombud caps list\nombud caps list agent:main --all\nombud caps list --bases",
		args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		if bases {
			return a.showBases()
		}
		res, err := a.client.CapsList(ctx, wire.CapsListRequest{Subject: argument(args, 0), All: all})
		if err != nil {
			return err
		}
		return a.show("caps/1", res, func(p *page) { capsPage(p, res) })
	})
	c.Flags().BoolVar(&all, "all", false, "revoked grants too")
	c.Flags().BoolVar(&bases, "bases", false, "every base a scope can begin with")
	return c
}

func argument(args []string, i int) string {
	if i < len(args) {
		return args[i]
	}
	return ""
}

func capsPage(p *page, res wire.CapsListResult) {
	for _, s := range res.Subjects {
		p.line("%s  role %s, tier at most %s", p.strong(oneLine(s.Subject)), s.Role, s.MaxTier)
		for _, r := range s.Rules {
			p.line("  %s%s", pad(r.Effect, fieldWidth), oneLine(r.Scope))
		}
		p.line("")
	}
	if len(res.Grants) == 0 {
		p.line("%s", p.faint("no grants beside the roles"))
		return
	}
	for _, g := range res.Grants {
		p.grantLines(g)
	}
}

// grantLines tells one grant and what it comes to.
func (p *page) grantLines(g wire.Grant) {
	id := g.ID
	if id == "" {
		id = "(not stored)"
	}
	p.line("%s  %s %s for %s", p.strong(id), g.Effect, oneLine(g.Scope), oneLine(g.Subject))
	var about []string
	if g.Conversation != "" {
		about = append(about, "in "+oneLine(g.Conversation))
	}
	if g.ID != "" {
		about = append(about, "by "+oneLine(g.By)+" "+p.clock(g.At))
	}
	if g.Origin != "operator" {
		about = append(about, "from "+oneLine(g.Origin))
	}
	switch {
	case g.State == "revoked":
		about = append(about, "revoked by "+oneLine(g.RevokedBy)+" "+p.clock(g.RevokedAt))
	case g.State == "expired":
		about = append(about, "expired "+p.clock(g.ExpiresAt))
	case g.ExpiresAt > 0:
		about = append(about, "until "+p.clock(g.ExpiresAt))
	}
	if len(about) > 0 {
		p.line("  %s", strings.Join(about, ", "))
	}
	if g.State != "live" {
		return
	}
	switch g.Grants {
	case "nothing":
		p.line("  %s %s", p.warn("grants nothing:"), oneLine(g.Why))
	case "part":
		p.line("  %s %s", p.warn("in part only:"), oneLine(g.Why))
	}
}

// baseRow is one row of the table of scopes.
type baseRow struct {
	Base         string `json:"base"`
	Qualifier    string `json:"qualifier"`
	Area         string `json:"area"`
	ReadOnly     bool   `json:"read_only"`
	Irreversible bool   `json:"irreversible"`
}

func (a *app) showBases() error {
	var rows []baseRow
	for _, b := range scope.Bases() {
		rows = append(rows, baseRow{b.String(), b.Kind().String(), b.Area(), b.ReadOnly(), b.Irreversible()})
	}
	return a.show("bases/1", struct {
		Bases []baseRow `json:"bases"`
	}{rows}, func(p *page) {
		t := table{head: []string{"BASE", "QUALIFIER", "EFFECT"}}
		for _, r := range rows {
			effect := "changes"
			switch {
			case r.ReadOnly:
				effect = "reads"
			case r.Irreversible:
				effect = "irreversible"
			}
			t.add(r.Base, r.Qualifier, effect)
		}
		p.table(t)
	})
}

func (a *app) capsGrantCmd() *cobra.Command {
	var req wire.CapsGrantRequest
	var good time.Duration
	effects := map[string]*bool{}
	c := a.command(spec{
		use:   "grant SUBJECT SCOPE",
		short: "allow, ask, deny, limit, or answer beforehand",
		long: `Writes a rule beside the role of a subject. Without a flag it allows, as far as role
and tier do. --standing answers what would be asked with yes; --limit says that of
its base the subject has this much at most. What it comes to is told at once.`,
		example: `ombud caps grant agent:main "fs.write:/home/ana/notes/**" --standing
ombud caps grant agent:main shell.exec --deny
ombud caps grant agent:main net.fetch:https://example.com/ --standing --for 24h`,
		args: cobra.ExactArgs(2),
	}, func(ctx context.Context, args []string) error {
		req.Subject, req.Scope = args[0], args[1]
		for name, set := range effects {
			if !*set {
				continue
			}
			if req.Effect != "" {
				return fault.New(fault.Usage, "--%s and --%s are two effects", req.Effect, name)
			}
			req.Effect = name
		}
		if good < 0 || good > 0 && good < time.Second {
			return fault.New(fault.Usage, "--for %s is no time", good)
		}
		req.ForS = int64(good / time.Second)
		res, err := a.client.CapsGrant(ctx, req)
		if err != nil {
			return err
		}
		return a.show("grant/1", res, func(p *page) { p.grantLines(res.Grant) })
	})
	for name, doc := range map[string]string{
		"allow": "the subject has the scope (the default)", "ask": "it has to ask for it", "deny": "it does not get it",
		"limit": "of this base it has this much at most", "standing": "what it would have to ask is answered with yes",
	} {
		effects[name] = c.Flags().Bool(name, false, doc)
	}
	c.Flags().StringVar(&req.Conversation, "conversation", "", "only in this conversation")
	c.Flags().DurationVar(&good, "for", 0, "how long it is good, as 24h (default: until it is revoked)")
	c.Flags().BoolVar(&req.Preview, "preview", false, "store nothing, only say what it would come to")
	return c
}

func (a *app) capsRevokeCmd() *cobra.Command {
	return a.command(spec{
		use:     "revoke ID",
		short:   "take a grant back",
		long:    "It is out of force at the next decision of every turn that begins or goes on.",
		example: "ombud caps revoke grt_0197a3",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.CapsRevoke(ctx, wire.CapsRevokeRequest{ID: args[0]})
		if err != nil {
			return err
		}
		return a.show("grant/1", res, func(p *page) { p.grantLines(res.Grant) })
	})
}

func (a *app) capsWhyCmd() *cobra.Command {
	var req wire.CapsWhyRequest
	var input string
	c := a.command(spec{
		use:   "why SUBJECT [SCOPE]",
		short: "how a call would be decided, and by which rule",
		long: `Asks the same function that decides every call. What it cannot know is what others
wrote into the context of a call, the budget, and what was refused before in its run:
ombud explain shows those for a call that was made.`,
		example: `ombud caps why agent:main shell.exec:/usr/bin/git
ombud caps why agent:main --tool fs.write --input '{"path":"a.txt","content":"x"}'
ombud caps why agent:main email.send --json`,
		args: cobra.RangeArgs(1, 2),
	}, func(ctx context.Context, args []string) error {
		req.Subject, req.Scope = args[0], argument(args, 1)
		if req.Scope == "" && req.Tool == "" {
			return fault.New(fault.Usage, "a scope or --tool is needed").WithHint("ombud caps list --bases")
		}
		if input != "" {
			if req.Input = json.RawMessage(input); !json.Valid(req.Input) {
				return fault.New(fault.Usage, "--input is not JSON")
			}
		}
		res, err := a.client.CapsWhy(ctx, req)
		if err != nil {
			return err
		}
		return a.show("why/1", res, func(p *page) { whyPage(p, res) })
	})
	c.Flags().StringVar(&req.Tool, "tool", "", "ask about a call of this tool instead of a scope")
	c.Flags().StringVar(&input, "input", "", "the tool's input, as JSON")
	c.Flags().StringVar(&req.Conversation, "conversation", "", "as in this conversation")
	c.Flags().StringVar(&req.Tier, "tier", "", "as if connected so: untrusted, semitrusted, paired, trusted (default trusted)")
	c.Flags().BoolVar(&req.Unattended, "unattended", false, "as if nobody were there to be asked")
	return c
}

func whyPage(p *page, res wire.CapsWhyResult) {
	word := res.Decision
	if res.Park {
		word += ", kept for review while the work goes on"
	}
	p.line("%s", p.effect(res.Decision, word))
	p.field("because", oneLine(res.Decided.Text))
	if res.Decided.Rule != "" {
		rule := res.Decided.Rule
		if res.Decided.Grant != "" {
			rule += " (" + res.Decided.Grant + ")"
		}
		p.field("rule", oneLine(rule))
	}
	p.field("call", oneLine(res.Summary))
	for i, s := range res.Scopes {
		name := "needs"
		if i > 0 {
			name = ""
		}
		p.field(name+" ", oneLine(s))
	}
	p.line("")
	t := table{head: []string{"SAYS", "LAYER", "WHY"}}
	for _, r := range res.Reasons {
		why := r.Text
		if r.Grant != "" {
			why += " (" + r.Grant + ")"
		}
		t.add(r.Effect, r.Layer, why)
	}
	t.tint = func(row, col int, cell string) string {
		if col != 0 {
			return cell
		}
		return p.effect(res.Reasons[row].Effect, cell)
	}
	p.table(t)
	p.line("")
	p.line("%s", p.faint("every layer has to agree: no grant gives more than role and tier"))
}

// effect paints a text by the effect it tells.
func (p *page) effect(effect, text string) string {
	switch effect {
	case "allow":
		return p.good(text)
	case "ask":
		return p.warn(text)
	}
	return p.bad(text)
}

func (a *app) capsMeterCmd() *cobra.Command {
	var days int
	c := a.command(spec{
		use:     "meter [SUBJECT]",
		short:   "how calls ended, by tool",
		long:    "Counted from the audit log.",
		example: "ombud caps meter\nombud caps meter agent:main --days 30",
		args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		const most = 366
		if days < 1 || days > most {
			return fault.New(fault.Usage, "--days %d is not between 1 and %d", days, most)
		}
		res, err := a.client.CapsMeter(ctx, wire.CapsMeterRequest{Subject: argument(args, 0), Days: days})
		if err != nil {
			return err
		}
		return a.show("meter/1", res, func(p *page) { meterPage(p, res) })
	})
	const week = 7
	c.Flags().IntVar(&days, "days", week, "how many days up to now")
	return c
}

func meterPage(p *page, res wire.CapsMeterResult) {
	if len(res.Lines) == 0 {
		p.line("no calls since %s", p.clock(res.Since))
		return
	}
	t := table{head: []string{"SUBJECT", "TOOL", "OUTCOME", "CALLS", "COST"}}
	for _, l := range res.Lines {
		outcome := l.Outcome
		if l.Reason != "" {
			outcome += " (" + l.Reason + ")"
		}
		cost := ""
		if l.CostMicroUSD > 0 {
			cost = money(l.CostMicroUSD, true)
		}
		t.add(l.Subject, l.Tool, outcome, fmt.Sprint(l.Calls), cost)
	}
	p.table(t)
}
