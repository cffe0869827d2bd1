package cli

import (
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/wire"
)

// previewPage is the screen before an install: what it is, who signed it, what it may do,
// what it could do at worst, and what is odd about it.
func previewPage(p *page, v wire.LoopPreview, from string) {
	m := v.Manifest
	p.line("%s", p.strong(p.clean(oneLine(m.Name+" "+m.Version))))
	p.field("says it is", oneLine(m.Description))
	p.field("from", oneLine(from))
	p.field("sha256", v.SHA256)
	vouchingFields(p, v.Vouching)
	if v.TypeName != "" {
		p.field("vouched for", p.bad("by nobody: "+p.clean(oneLine(v.TypeName))))
	} else {
		p.field("vouched for", oneLine(v.Vouched))
	}
	p.field("source", oneLine(m.Source))
	if v.Replaces != "" {
		changePage(p, v)
	}
	lines(p, "it may", v.May, "")
	lines(p, "at worst it could", v.Worst, "")
	p.field("a run has", limitsText(v.Limits))
	lines(p, p.bad("no signature covers this: whoever passed the file on could have written it"), v.Unsigned, "")
	lines(p, p.warn("ombud does not have these tools, so calls of them fail"), v.Missing, "")
	lines(p, p.warn("ombud does not have these host functions, so calls of them are refused"), v.Unknown, "")
	for _, w := range v.Warnings {
		p.line("%s", p.warn("note: "+p.clean(oneLine(w))))
	}
}

// changePage is how an upgrade changes what a loop may do.
func changePage(p *page, v wire.LoopPreview) {
	p.field("replaces", oneLine(v.Replaces))
	if v.Downgrade != "" {
		p.line("%s", p.bad("an older version: "+p.clean(oneLine(v.Downgrade))))
	}
	if v.Another != "" {
		p.line("%s", p.bad("ANOTHER PUBLISHER: until now it was signed by "+p.clean(oneLine(v.Another))))
	}
	switch {
	case len(v.More)+len(v.Less) > 0:
		lines(p, p.bad("new: it may now also"), v.More, "+ ")
		lines(p, "gone: it may no longer", v.Less, "- ")
	case len(v.Added)+len(v.Removed) > 0:
		lines(p, p.bad("new in its manifest"), v.Added, "+ ")
		lines(p, "gone from its manifest", v.Removed, "- ")
	default:
		p.line("it may do what it could before, no more and no less")
	}
}

// lines is a list under a heading; nothing if it is empty.
func lines(p *page, head string, list []string, mark string) {
	if len(list) == 0 {
		return
	}
	if mark == "" {
		mark = "- "
	}
	p.line("%s:", head)
	for _, l := range list {
		p.line("  %s%s", mark, oneLine(l))
	}
}

func vouchingFields(p *page, v wire.LoopVouching) {
	by := v.Publisher
	if by == "" {
		by = p.bad("nobody")
	}
	p.field("signed by", by)
	p.field("reviewed by", v.Registry)
	tier := map[string]string{
		"registry": "registry: reviewed", "community": "community: signed by its publisher alone", "untrusted": "untrusted: not signed",
	}[v.Tier]
	if v.Format == 1 {
		tier += "; KARMAX's format, whose signature leaves parts out"
	}
	p.field("tier", tier)
}

func limitsText(l wire.LoopLimits) string {
	return strings.Join([]string{
		size(int64(l.MemoryMB)<<20) + " of memory", (time.Duration(l.TimeS) * time.Second).String() + " of work",
		plural(int64(l.Calls), "call"), size(int64(l.LogBytes)) + " of log", "answers of up to " + size(int64(l.Answer)), size(int64(l.Record)) + " of record",
	}, ", ")
}

// installedPage is what is said after an install.
func installedPage(p *page, v wire.LoopPreview, l wire.Loop) {
	if v.Replaces == v.Manifest.Version {
		p.line("installed %s %s again", l.Name, v.Replaces)
	} else if v.Replaces != "" {
		p.line("upgraded %s from %s to %s", l.Name, v.Replaces, v.Manifest.Version)
	} else {
		p.line("installed %s %s", l.Name, v.Manifest.Version)
	}
	if len(l.Triggers) > 0 {
		p.field("starts", strings.Join(l.Triggers, ", "))
	}
	if l.State == "disabled" {
		p.line("it is disabled: ombud loop enable %s", l.Name)
	}
	p.line("%s", p.faint("ombud loop run "+l.Name+" --wait"))
}

// signedPage is what an installed signed loop has beside the fields of every loop.
func signedPage(p *page, s wire.LoopSigned) {
	m := s.Manifest
	p.field("version", m.Version)
	p.field("sha256", s.SHA256)
	vouchingFields(p, s.Vouching)
	p.field("installed", p.clock(s.InstalledAt)+" by "+s.InstalledBy+from(s.From))
	p.field("a run has", limitsText(s.Limits))
	if m.Webhook != "" {
		how := "webhook answers nobody: ombud loop set " + m.Name + " --webhook SECRET"
		switch s.Webhook {
		case "":
		case "open":
			how = "anybody can call its webhook"
		default:
			how = "calls of its webhook are signed with the secret " + s.Webhook
		}
		p.field("webhook", how)
	}
	lines(p, "it may", s.May, "")
	lines(p, "at worst it could", s.Worst, "")
}

func from(where string) string {
	if where == "" {
		return ""
	}
	return ", from " + oneLine(where)
}
