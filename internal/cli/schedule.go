package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/cron"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) scheduleCmd() *cobra.Command {
	list := a.scheduleListCmd()
	return byDefault(a.noun(spec{
		use: "schedule", short: "what starts by itself at times",
		example: `ombud schedule
ombud schedule add '30 8 * * 1-5' --zone Europe/Stockholm --say "briefing" --name briefing
ombud schedule next '30 2 * * *' --zone Europe/Stockholm --from 2026-03-28T12:00:00Z`,
	}, list, a.scheduleAddCmd(), a.scheduleChangeCmd("pause", "keep a schedule from firing", "paused"),
		a.scheduleChangeCmd("resume", "let a paused schedule go on, with its first instant from now", "resumed"),
		a.scheduleChangeCmd("rm", "remove a schedule; its events stay", "removed"), a.scheduleRunCmd(), a.scheduleNextCmd()), list)
}

func (a *app) scheduleListCmd() *cobra.Command {
	var req wire.ScheduleListRequest
	c := a.command(spec{
		use: "list", short: "schedules, with the next instant and how the last one ended",
		long: `NEXT is in your zone; where the schedule follows another one, the time there stands
behind it. MISSED counts the instants that started nothing, since the schedule was made
or its text was last changed: ombud events list --stream schedule:ID tells each.`,
		example: "ombud schedule list\nombud schedule list --owner agent:main --json",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.ScheduleList(ctx, req)
		for err == nil && len(res.Schedules) > 0 && len(res.Schedules)%1000 == 0 {
			var more wire.ScheduleListResult
			req.After = res.Schedules[len(res.Schedules)-1].ID
			if more, err = a.client.ScheduleList(ctx, req); len(more.Schedules) == 0 {
				break
			}
			res.Schedules = append(res.Schedules, more.Schedules...)
		}
		if err != nil {
			return err
		}
		return a.show("schedules/1", res, func(p *page) { schedulesPage(p, res.Schedules) })
	})
	c.Flags().StringVar(&req.Owner, "owner", "", "only those of operator or agent:NAME")
	return c
}

func schedulesPage(p *page, list []wire.Schedule) {
	if len(list) == 0 {
		p.line("no schedules")
		return
	}
	t := table{head: []string{"NAME", "WHEN", "NEXT", "LAST", "MISSED", "STARTS"}}
	for _, x := range list {
		t.add(fullName(x), x.When+zoneSuffix(x), nextCell(p, x), lastCell(p, x), missedCell(x), short(startsCell(x), 40))
	}
	p.table(t)
	for _, x := range list {
		switch {
		case x.Problem != nil:
			p.line("%s: %s", oneLine(fullName(x)), p.bad(oneLine(x.Problem.Message)))
		case x.Last != nil && x.Last.Error != "":
			p.line("%s: %s", oneLine(fullName(x)), p.bad(oneLine(x.Last.Error)))
		}
	}
}

// fullName is what the other commands know a schedule by.
func fullName(x wire.Schedule) string {
	switch {
	case x.Name == x.ID || x.Name == "":
		return x.ID
	case x.Owner == "operator":
		return x.Name
	}
	return x.Owner + "/" + x.Name
}

func zoneSuffix(x wire.Schedule) string {
	if x.Zone == "Local" {
		return ""
	}
	return " " + x.Zone
}

func nextCell(p *page, x wire.Schedule) string {
	if x.State != "active" {
		return x.State
	}
	if x.NextAt == 0 {
		return "-"
	}
	out := p.clock(x.NextAt)
	if there, err := time.Parse(time.RFC3339, x.Next); err == nil {
		if wall := there.Format("2006-01-02 15:04"); wall != time.UnixMicro(x.NextAt).In(p.now.Location()).Format("2006-01-02 15:04") {
			out += " (" + wall + there.Format(" -07:00") + ")"
		}
	}
	return out
}

func lastCell(p *page, x wire.Schedule) string {
	if x.Last == nil {
		return "-"
	}
	return x.Last.Outcome + " " + p.clock(x.Last.At)
}

func missedCell(x wire.Schedule) string {
	if x.MissedCount == 0 {
		return "-"
	}
	return plural(x.MissedCount, "instant")
}

func startsCell(x wire.Schedule) string {
	if x.Target != "" {
		return x.Target
	}
	to := ""
	if x.Conversation != "" {
		to = " in " + x.Conversation
	}
	return "say" + to + ": " + x.Say
}

func (a *app) scheduleAddCmd() *cobra.Command {
	var req wire.ScheduleAddRequest
	var grace, jitter time.Duration
	var c *cobra.Command
	c = a.command(spec{
		use: "add WHEN --say TEXT", short: "let something start at times",
		long: `WHEN is "minute hour day month weekday", with a second in front if there are six fields;
@hourly, @daily and so on; "@every 90m" from now on; or "@at 2026-05-01T09:00:00+02:00", once.
A time is that of the clock in --zone: on the day it is put forward, what it jumps over
comes right after; on the day it is put back, what comes twice fires once. ombud schedule
next shows it.

What passed while the daemon was down is made up for by one start, if it is at most
--grace old (--missed once), not at all (skip), or by one start each (all, at most 100).
Nobody waits for what is started: what it has to ask is found in ombud inbox.`,
		example: `ombud schedule add '30 8 * * *' --zone Europe/Stockholm --say "briefing"
ombud schedule add @hourly --say "look at the mail" --name mail --conversation mail --missed skip
ombud schedule add '0 9 * * 1' --say "plan the week" --name week --grace 12h --replace`,
		args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		req.When = args[0]
		if req.Say == "" {
			return fault.New(fault.Usage, "give what an agent is told: --say TEXT").WithHint("ombud schedule add --help")
		}
		if grace%time.Second != 0 || jitter%time.Second != 0 {
			return fault.New(fault.Usage, "--grace and --jitter are whole seconds")
		}
		if c.Flags().Changed("grace") {
			seconds := int64(grace / time.Second)
			req.GraceS = &seconds
		}
		req.JitterS = int64(jitter / time.Second)
		res, err := a.client.ScheduleAdd(ctx, req)
		if err != nil {
			return err
		}
		return a.show("schedule/1", res, func(p *page) {
			p.line("%s: next at %s", p.strong(oneLine(fullName(res.Schedule))), nextCell(p, res.Schedule))
			for _, note := range notesOf(res.Schedule.When, res.Schedule.Zone) {
				p.line("%s", p.faint("note: "+note))
			}
		})
	})
	f := c.Flags()
	f.StringVar(&req.Say, "say", "", "what an agent is told")
	f.StringVar(&req.Name, "name", "", "what to call it")
	f.StringVar(&req.Zone, "zone", "", "time zone, such as Europe/Stockholm (default the daemon's)")
	f.StringVar(&req.Conversation, "conversation", "", "where it is said (default main)")
	f.StringVar(&req.Agent, "agent", "", "who is told, in a new conversation (default main)")
	f.StringVar(&req.Missed, "missed", "once", "what becomes of instants that passed while nothing could fire: once, skip or all")
	f.DurationVar(&grace, "grace", time.Hour, "how late a missed instant still fires, with --missed once")
	f.StringVar(&req.Overlap, "overlap", "", "while the last start is still at work: skip or queue (default skip; queue with --missed all)")
	f.DurationVar(&jitter, "jitter", 0, "delay each instant by less than this, always by the same")
	f.BoolVar(&req.Replace, "replace", false, "put it in the place of your schedule of that name")
	return c
}

// notesOf is what in a schedule is probably meant otherwise.
func notesOf(when, zone string) []string {
	loc, err := cron.Zone(zone)
	if err != nil {
		return nil
	}
	s, err := cron.Parse(when, loc)
	if err != nil {
		return nil
	}
	return s.Notes()
}

func (a *app) scheduleChangeCmd(verb, doc, done string) *cobra.Command {
	return a.command(spec{
		use: verb + " SCHEDULE", short: doc,
		long:    "SCHEDULE is a name, an id or the beginning of one; that of another owner is OWNER/NAME.",
		example: "ombud schedule " + verb + " briefing\nombud schedule " + verb + " agent:main/morning", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		call := map[string]func(context.Context, wire.ScheduleRequest) (wire.ScheduleResult, error){
			"pause": a.client.SchedulePause, "resume": a.client.ScheduleResume, "rm": a.client.ScheduleRemove,
		}[verb]
		res, err := call(ctx, wire.ScheduleRequest{Schedule: args[0]})
		if err != nil {
			return err
		}
		return a.show("schedule/1", res, func(p *page) {
			text := done + " " + fullName(res.Schedule)
			if verb == "resume" {
				text += ": next at " + nextCell(p, res.Schedule)
			}
			p.line("%s", oneLine(text))
		})
	})
}

func (a *app) scheduleRunCmd() *cobra.Command {
	return a.command(spec{
		use: "run SCHEDULE", short: "fire a schedule now",
		long:    "Its instants stay as they are, and it may be paused. SCHEDULE is as for ombud schedule pause.",
		example: "ombud schedule run briefing", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.ScheduleRun(ctx, wire.ScheduleRequest{Schedule: args[0]})
		if err != nil {
			return err
		}
		return a.show("schedule-run/1", res, func(p *page) {
			if res.RunID == "" {
				p.line("fired %s", oneLine(fullName(res.Schedule)))
				return
			}
			p.line("fired %s: %s", oneLine(fullName(res.Schedule)), res.RunID)
			p.line("%s", p.faint("ombud explain "+res.RunID+" tells what became of it"))
		})
	})
}

// instant is one line of ombud schedule next.
type instant struct {
	At string `json:"at"` // RFC 3339, in the zone of the schedule
}

// maxInstants is how many are shown at most.
const maxInstants = 10_000

func (a *app) scheduleNextCmd() *cobra.Command {
	var zone, from string
	var count int
	c := a.command(spec{
		use: "next WHEN", short: "when a schedule would fire, without a daemon",
		long: `Every instant is shown with its offset; where that differs from the one before, the
clock was changed in between. --json writes an array of objects with "at".`,
		example: `ombud schedule next '30 2 * * *' --zone America/New_York --from 2026-03-07T12:00:00Z --count 3
ombud schedule next '@every 45m' --json`,
		args: cobra.ExactArgs(1),
	}, func(_ context.Context, args []string) error {
		if count < 1 || count > maxInstants {
			return fault.New(fault.Usage, "--count is from 1 to %d", maxInstants)
		}
		loc, err := cron.Zone(zone)
		if err != nil {
			return err
		}
		s, err := cron.Parse(args[0], loc)
		if err != nil {
			return err
		}
		start := a.now().Truncate(time.Second)
		if from != "" {
			if start, err = readMoment(from, s.Location()); err != nil {
				return err
			}
		}
		found := s.Anchored(start).Upcoming(start, count)
		if a.json {
			return a.writeInstants(found)
		}
		p := &page{style: a.style, now: a.now()}
		instantsPage(p, s, start, found)
		_, err = a.stdout.Write(p.buf.Bytes())
		return outputFault(err)
	})
	f := c.Flags()
	f.StringVar(&zone, "zone", "Local", "time zone, such as Europe/Stockholm")
	f.StringVar(&from, "from", "", "after which moment: 2026-03-28T12:00:00Z, or 2026-03-28T12:00 in the zone (default now)")
	f.IntVar(&count, "count", 5, "how many instants")
	return c
}

// readMoment reads a moment of RFC 3339, or one on the clock of a zone.
func readMoment(text string, loc *time.Location) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, strings.ToUpper(text)); err == nil {
		return t, nil
	}
	for _, form := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(form, text, loc); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fault.New(fault.Usage, "--from %q is no moment", text).WithHint("write 2026-03-28T12:00:00Z or 2026-03-28T12:00")
}

func (a *app) writeInstants(found []time.Time) error {
	out := make([]instant, 0, len(found))
	for _, t := range found {
		out = append(out, instant{t.Format(time.RFC3339Nano)})
	}
	raw, err := encode(out)
	if err != nil {
		return err
	}
	_, err = a.stdout.Write(raw)
	return outputFault(err)
}

func instantsPage(p *page, s *cron.Schedule, start time.Time, found []time.Time) {
	_, before := start.In(s.Location()).Zone()
	for _, t := range found {
		line := t.Format("Mon 2006-01-02 15:04:05 -07:00")
		if _, offset := t.Zone(); offset != before {
			line += p.faint("  the clock was put " + direction(offset-before))
			before = offset
		}
		p.line("%s", line)
	}
	if len(found) == 0 {
		p.line("no instant is left")
	}
	notes := s.Notes()
	slices.Sort(notes)
	for _, note := range notes {
		p.line("%s", p.faint("note: "+note))
	}
}

func direction(seconds int) string {
	if seconds > 0 {
		return "forward by " + span(time.Duration(seconds)*time.Second)
	}
	return "back by " + span(time.Duration(-seconds)*time.Second)
}
