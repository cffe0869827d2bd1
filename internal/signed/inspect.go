package signed

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/cron"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/wasmloop"
)

// Preview is what the operator is shown of an artifact before anything is written.
type Preview struct {
	SHA256   string
	Size     int
	Format   int
	Manifest wasmloop.Manifest
	Verdict  wasmloop.Verdict
	// Vouched is who vouches for it, "" if nobody whom this instance trusts.
	Vouched string

	May      []string // what it may do, a line each
	Worst    []string // what it could do at worst
	Unsigned []string // what no signature covers; each line is confirmed
	Unknown  []string // host functions that it calls and ombud does not have
	Missing  []string // tools that it calls and ombud does not have
	Warnings []string // what else is odd about it

	// Set if it replaces a version.
	Replaces  *Installed
	More      []string                 // what it may do and that may not, a line each
	Less      []string                 // what that may do and it may not
	Diff      *wasmloop.CapabilityDiff // the same, as the manifests name it
	Downgrade string                   // what says that it is an older version, "" if nothing does
	Another   string                   // the publisher of what it replaces, if that is another one
	Same      bool                     // it is the very file that is installed, and that is in order
	Repairs   bool                     // it is the very file that is installed, and what is kept of it is damaged

	// Name says that its name has to be typed, and why; "" if a yes is enough.
	Name string
}

// nameForm is what a loop can be called: it is a subject, and a target.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// standing is what an approval rests on beside the artifact. If it is another one when the
// approval is carried out, that is refused.
type standing struct {
	trust []TrustRow
	old   *Installed
}

func (l *Library) standingIn(ctx context.Context, q db.Q, name string) (s standing, err error) {
	if s.trust, err = l.trustIn(ctx, q); err != nil {
		return s, err
	}
	old, err := l.getIn(ctx, q, name)
	switch {
	case err == nil:
		s.old = &old
	case !fault.Is(err, fault.NotFound):
		return s, err
	}
	return s, nil
}

// same reports whether nothing has changed that an approval rests on.
func (s standing) same(o standing) bool {
	if (s.old == nil) != (o.old == nil) || s.old != nil && (s.old.SHA256 != o.old.SHA256 || s.old.At != o.old.At) {
		return false
	}
	return slices.Equal(s.trust, o.trust)
}

func (s standing) keys(kind string) (out []string) {
	for _, r := range s.trust {
		if r.Kind == kind {
			out = append(out, r.Key)
		}
	}
	return out
}

// Inspect verifies an artifact that was handed over and says what installing it would mean.
// Nothing is written. Errors: NotFound if it was not handed over, Invalid if it is no loop
// that can be run here, Verification if a part of it does not belong to it, Denied if a key
// of it is revoked.
func (l *Library) Inspect(ctx context.Context, sha string) (Preview, error) {
	data, err := l.uploaded(sha)
	if err != nil {
		return Preview{}, err
	}
	_, p, _, err := l.inspect(ctx, sha, data)
	return p, err
}

func (l *Library) inspect(ctx context.Context, sha string, data []byte) (a *wasmloop.Artifact, p Preview, s standing, err error) {
	unverified, err := wasmloop.Unpack(data)
	if err != nil {
		return nil, p, s, refusal(err)
	}
	err = l.d.DB.Read(ctx, func(ctx context.Context, q db.Q) error {
		s, err = l.standingIn(ctx, q, unverified.Manifest.Name)
		return err
	})
	if err != nil {
		return nil, p, s, err
	}
	// Every tier is let in here; which needs what is said by the preview.
	trust := wasmloop.Trust{Registries: s.keys(Registry), Revoked: s.keys(Revoked), AllowUntrusted: true}
	a, v, err := wasmloop.VerifyBytes(data, trust)
	if err != nil {
		return nil, p, s, refusal(err)
	}
	if err := l.fits(a); err != nil {
		return nil, p, s, err
	}
	m := a.Manifest
	p = Preview{
		SHA256: sha, Size: len(data), Format: a.Format(), Manifest: m, Verdict: *v, May: wasmloop.Describe(m), Worst: Worst(m, l.d.Tool),
		Unsigned: a.Unsigned(), Unknown: wasmloop.UnknownHostFunctions(m.Host), Missing: l.missing(m),
	}
	if a.Format() == 1 {
		p.Warnings = l.d.Lenient(m)
	} else if _, idle := Rules(m); len(idle) > 0 {
		p.Warnings = append(p.Warnings, "these grant nothing here: "+strings.Join(idle, ", "))
	}
	if m.Webhook != "" {
		p.Warnings = append(p.Warnings, "its webhook answers nobody until you say who may call it: ombud loop set "+m.Name+" --webhook SECRET")
	}
	l.vouch(&p, s)
	if s.old != nil && s.old.SHA256 == sha {
		bad := l.verify(ctx, *s.old, s.trust)
		if p.Same, p.Repairs = bad == nil, bad != nil; p.Repairs {
			p.Warnings = append(p.Warnings, "what is kept of it is damaged, and this puts it in order: "+bad.Error())
		}
	}
	p.against(s.old)
	return a, p, s, nil
}

// fits refuses what cannot be a loop of this instance. Our own format is held to all it
// says; of v1 what cannot be done is told and left out.
func (l *Library) fits(a *wasmloop.Artifact) error {
	m := a.Manifest
	bad := func(format string, args ...any) *fault.Error {
		return fault.New(fault.Invalid, "loop "+m.Name+": "+format, args...)
	}
	switch {
	case !nameForm.MatchString(m.Name):
		return fault.New(fault.Invalid, "a loop cannot be called %q: it is 1 to 64 letters, digits and . _ -, and begins with none of these three", m.Name)
	case l.d.Taken(strings.ToLower(m.Name)):
		return fault.New(fault.Conflict, "a loop that is a part of ombud is called %s", m.Name).WithHint("its publisher has to give it another name")
	case m.MemoryMB < 0 || m.MemoryMB > maxMemoryMB:
		return bad("it asks for %d MiB of memory; an instance has 1 to %d", m.MemoryMB, maxMemoryMB)
	}
	if a.Format() == 1 {
		return nil
	}
	if unknown := wasmloop.UnknownHostFunctions(m.Host); len(unknown) > 0 {
		return bad("it calls %s, which this version of ombud does not have", strings.Join(unknown, ", ")).WithHint("a newer ombud may have it; ombud version")
	}
	problems := wasmloop.Problems(m)
	for _, c := range m.Capabilities {
		texts := scopesOf(m, c)
		if len(texts) > 0 && !slices.ContainsFunc(texts, func(text string) bool { _, err := scope.ParseRule(text); return err == nil }) {
			problems = append(problems, fmt.Sprintf("capabilities: %q stands for nothing that can be granted", c))
		}
	}
	if m.Schedule != "" {
		switch s, err := cron.Parse(m.Schedule, time.UTC); {
		case err != nil:
			problems = append(problems, "schedule: "+err.Error())
		case s.Often(time.Minute):
			problems = append(problems, "schedule: "+m.Schedule+" is more than once a minute")
		}
	}
	if len(problems) > 0 {
		return bad("%s", strings.Join(problems, "; ")).WithHint("its publisher has to mend it; ombud loop build says the same")
	}
	return nil
}

// maxMemoryMB is the most memory an instance can have.
const maxMemoryMB = 4096

// missing are the tools that a loop calls and ombud does not have.
func (l *Library) missing(m wasmloop.Manifest) (out []string) {
	for _, name := range m.Tools {
		if _, there := l.d.Tool(name); !there && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// vouch says who vouches for an artifact, and whether its name has to be typed.
func (l *Library) vouch(p *Preview, s standing) {
	name, key := p.Manifest.Name, p.Verdict.Publisher
	own, err := l.d.OwnKey()
	if err != nil {
		l.slog.Warn("the publisher's key of this instance cannot be read", "error", err)
	}
	switch {
	case p.Verdict.Tier == wasmloop.TierRegistry:
		p.Vouched = "the registry " + p.Verdict.Registry + ", which you trust, has reviewed it"
	case key == "":
		p.Name = "nobody has signed it"
	case key == own && own != "":
		p.Vouched = "it is signed with the key of this machine"
	case slices.Contains(s.keys(Publisher), key):
		p.Vouched = "you trust its publisher " + key
	case slices.ContainsFunc(s.trust, func(r TrustRow) bool { return r.Kind == Community }):
		p.Vouched = "you let in every loop that a publisher has signed"
	default:
		p.Name = "only its publisher has signed it, and you trust neither the publisher nor a registry that has reviewed it"
	}
	if s.old != nil && s.old.Problem == nil && s.old.Publisher != key {
		p.Another = s.old.Publisher
		if p.Another == "" {
			p.Another = "nobody"
		}
		p.Warnings = append(p.Warnings, "what you set for "+name+" (values, time, who may call its webhook) is not handed to another publisher; "+
			"the notes it kept are, unless you remove it first")
		p.Name = fmt.Sprintf("%s was signed by %s until now, and this is signed by another", name, p.Another)
	}
}

// against compares with what is installed.
func (p *Preview) against(old *Installed) {
	if old == nil {
		return
	}
	p.Replaces = old
	if old.Problem != nil {
		p.Warnings = append(p.Warnings, "what is installed cannot be read, so nothing can be compared: "+old.Problem.Error())
		return
	}
	diff := wasmloop.DiffCapabilities(entry(*old), p.Manifest)
	p.Diff = &diff
	was := wasmloop.Describe(old.Manifest)
	p.More = slices.DeleteFunc(slices.Clone(p.May), func(s string) bool { return slices.Contains(was, s) })
	p.More = append(p.More, wasmloop.Retold(old.Manifest, p.Manifest)...)
	p.Less = slices.DeleteFunc(was, func(s string) bool { return slices.Contains(p.May, s) })
	if is, known := older(old.Manifest, p.Manifest); is {
		p.Downgrade = fmt.Sprintf("version %s is older than %s, which is installed", p.Manifest.Version, old.Manifest.Version)
	} else if !known && old.SHA256 != p.SHA256 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("whether %s is newer than %s cannot be told", p.Manifest.Version, old.Manifest.Version))
	}
}

// entry is an installed loop as a lockfile has it.
func entry(x Installed) wasmloop.Entry {
	m := x.Manifest
	e := wasmloop.Entry{
		Name: x.Name, Version: m.Version, SHA256: m.SHA256, Publisher: x.Publisher, Registry: x.Registry, Tier: x.Tier, Host: m.Host,
		Capabilities: m.Capabilities, Source: m.SourceURL, InstalledBy: x.By, FileSHA256: x.SHA256, Tools: m.Tools, Enabled: x.Stopped() == "",
	}
	for _, t := range m.Provides {
		e.Provides = append(e.Provides, t.Name)
	}
	return e
}
