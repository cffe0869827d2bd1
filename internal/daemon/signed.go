package daemon

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/compat/karmax"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/loops"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/signed"
	"github.com/ombud-run/ombud/internal/wire"
	"github.com/ombud-run/ombud/wasmloop"
)

// openSigned constructs the signed loops and what does their runs.
func (d *Daemon) openSigned(kinds *run.Kinds) error {
	role, err := d.roles.Get(policy.RoleSigned)
	if err != nil {
		return err
	}
	d.signed = signed.New(signed.Deps{
		DB: d.db, Vault: d.vault, Log: d.events, Audit: d.audit, Targets: d.triggers, Runs: d.runs, Lenient: karmax.Loop,
		Taken:   func(name string) bool { return slices.Contains(d.loopSet.Names(), name) },
		Tool:    d.toolFacts,
		Prepare: func(ctx context.Context, a *wasmloop.Artifact) error { return d.signedWork.Prepare(ctx, a) },
		Changed: d.lendTools, OwnKey: d.publisherKey, Tell: d.agents.NoticeTx, Logger: d.log,
	})
	d.signedWork = signed.NewWork(signed.WorkDeps{
		Shelf: d.signed, Kit: d.kit, Role: role, Budget: d.budget, Tools: d.tools, CacheDir: d.o.Instance.LoopCacheDir(), Logger: d.log,
	})
	for _, k := range d.signedWork.Kinds() {
		if err := kinds.Add(k); err != nil {
			return err
		}
	}
	return nil
}

// startSigned reads what is installed, before any run goes on.
func (d *Daemon) startSigned(ctx context.Context) error {
	if err := d.signed.Open(ctx); err != nil {
		return err
	}
	d.lendTools()
	return nil
}

// lendTools makes known which tools loops provide now.
func (d *Daemon) lendTools() {
	bad, err := d.signedWork.Lend()
	if err != nil {
		d.log.Warn("the tools that loops provide cannot be offered", "error", err)
	}
	for _, q := range bad {
		d.log.Warn("a tool that a loop provides cannot be used", "tool", q.Name, "reason", q.Reason)
	}
}

// toolFacts are what is said of a tool to who decides about a loop that calls it.
func (d *Daemon) toolFacts(name string) (signed.ToolFacts, bool) {
	def, err := d.tools.Get(name)
	if err != nil {
		return signed.ToolFacts{}, false
	}
	return signed.ToolFacts{ReadOnly: def.ReadOnly, Irreversible: def.Irreversible}, true
}

// publisherKey is the public half of the key that loops are signed with here, "" if there
// is none.
func (d *Daemon) publisherKey() (string, error) {
	data, err := os.ReadFile(d.o.Instance.PublisherFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer clear(data)
	key, err := wasmloop.ParsePublisher(data)
	if err != nil {
		return "", err
	}
	defer clear(key)
	return wasmloop.EncodeKey(key.Public().(ed25519.PublicKey)), nil //nolint:forcetypeassert // what it returns
}

// signedMethods are the operator's methods about them.
func (d *Daemon) signedMethods(m *ipc.Mux) {
	ipc.Handle(m, wire.LoopUpload, func(_ context.Context, req wire.LoopUploadRequest) (out wire.LoopUploadResult, err error) {
		out.Have, err = d.signed.Upload(req.SHA256, req.Size, req.Offset, req.Data)
		return out, err
	})
	ipc.Handle(m, wire.LoopInspect, func(ctx context.Context, req wire.LoopInspectRequest) (wire.LoopPreview, error) {
		p, err := d.signed.Inspect(ctx, req.SHA256)
		return wirePreview(p), err
	})
	ipc.Handle(m, wire.LoopInstall, func(ctx context.Context, req wire.LoopInstallRequest) (out wire.LoopResult, err error) {
		x, err := d.signed.Install(ctx, signed.Order{
			SHA256: req.SHA256, By: byOperator, From: req.From, Name: req.Name, Unsigned: req.Unsigned, Downgrade: req.Downgrade, Upgrade: req.Upgrade,
			Disabled: req.Disabled,
		})
		if err != nil {
			return out, err
		}
		out.Loop, err = d.signedLoop(ctx, x)
		return out, err
	})
	ipc.Handle(m, wire.LoopRemove, func(ctx context.Context, req wire.LoopRequest) (wire.Empty, error) {
		if _, err := d.loopSet.Get(ctx, req.Name); err == nil {
			return wire.Empty{}, fault.New(fault.Invalid, "%s is a part of ombud and cannot be removed", req.Name).WithHint("ombud loop disable %s", req.Name)
		}
		_, err := d.signed.Remove(ctx, req.Name, byOperator)
		return wire.Empty{}, err
	})
	ipc.Handle(m, wire.LoopSet, d.loopSettings)
	ipc.Handle(m, wire.LoopVerify, d.loopVerify)
	ipc.Handle(m, wire.TrustList, d.trustList)
	ipc.Handle(m, wire.TrustChange, d.trustChange)
}

func (d *Daemon) loopSettings(ctx context.Context, req wire.LoopSetRequest) (out wire.LoopResult, err error) {
	if _, err := d.loopSet.Get(ctx, req.Name); err == nil {
		return out, fault.New(fault.Invalid, "%s is a part of ombud: the configuration sets it", req.Name).WithHint("loops.%s in the configuration file", req.Name)
	}
	c := signed.Change{Name: req.Name, By: byOperator, Set: map[string]string{}, Unset: req.Unset, Webhook: req.Webhook}
	for _, s := range req.Set {
		c.Set[s.Name] = s.Value
	}
	if req.TimeoutS != nil {
		if *req.TimeoutS < 0 || *req.TimeoutS > int64(365*24*time.Hour/time.Second) {
			return out, fault.New(fault.Invalid, "a run cannot be given %d seconds", *req.TimeoutS)
		}
		t := time.Duration(*req.TimeoutS) * time.Second
		c.Timeout = &t
	}
	x, err := d.signed.Set(ctx, c)
	if err != nil {
		return out, err
	}
	out.Loop, err = d.signedLoop(ctx, x)
	return out, err
}

func (d *Daemon) loopVerify(ctx context.Context, req wire.LoopVerifyRequest) (out wire.LoopVerifyResult, err error) {
	list, err := d.signed.Verify(ctx, req.Name)
	for _, v := range list {
		shown := wire.LoopVerified{Name: v.Name, Version: v.Manifest.Version, SHA256: v.SHA256, Notes: v.Notes}
		if v.Problem != nil {
			shown.Problem = problem(fault.ClassOf(v.Problem), v.Problem.Error())
		}
		out.Loops = append(out.Loops, shown)
	}
	return out, err
}

func (d *Daemon) trustList(ctx context.Context, _ wire.Empty) (out wire.TrustListResult, err error) {
	rows, err := d.signed.Trusted(ctx)
	if err != nil {
		return out, err
	}
	for _, r := range rows {
		out.Trust = append(out.Trust, wire.Trust{Kind: r.Kind, Key: r.Key, URL: r.URL, Note: r.Note, By: r.By, At: r.At})
	}
	out.Own, err = d.publisherKey()
	return out, err
}

func (d *Daemon) trustChange(ctx context.Context, req wire.TrustChangeRequest) (out wire.TrustChangeResult, err error) {
	rows := func(list []wire.Trust) (out []signed.TrustRow) {
		for _, t := range list {
			out = append(out, signed.TrustRow{Kind: t.Kind, Key: t.Key, URL: t.URL, Note: t.Note})
		}
		return out
	}
	out.Stopped, out.Freed, err = d.signed.Change(ctx, signed.Trusting{Add: rows(req.Add), Remove: rows(req.Remove), By: byOperator})
	return out, err
}

// signedStatus is how an installed loop does.
func (d *Daemon) signedStatus(ctx context.Context, x signed.Installed) (loops.Status, error) {
	s, err := d.kit.StatusOf(ctx, d.triggers, signed.Kind, x.Subject(), d.began.UnixMicro())
	if fault.Is(err, fault.NotFound) { // one whose name is taken starts nothing
		s, err = loops.Status{State: loops.Off}, nil
	}
	if why := x.Stopped(); why != "" {
		s.State, s.Reason = loops.Off, why
	}
	s.Name, s.Description = x.Name, x.Manifest.Description
	s.Setting = loops.Setting{Timeout: x.Settings.Timeout, Values: x.Settings.Values}
	s.Standing.Name = x.Subject()
	return s, err
}

// signedLoop shows an installed loop.
func (d *Daemon) signedLoop(ctx context.Context, x signed.Installed) (wire.Loop, error) {
	s, err := d.signedStatus(ctx, x)
	if err != nil {
		return wire.Loop{}, err
	}
	out, err := d.wireLoop(ctx, s)
	if err != nil {
		return out, err
	}
	out.Kind, out.Role = "signed", policy.RoleSigned
	if m := x.Manifest; m.Webhook != "" && x.Settings.Webhook == "" {
		out.Triggers = append(out.Triggers, "webhook "+m.Webhook+" (not mounted)")
	}
	if len(out.Triggers) == 0 {
		out.Triggers = []string{"by hand"}
	}
	set := x.Settings.Timeout
	out.Signed = &wire.LoopSigned{
		SHA256: x.SHA256, Manifest: wireManifest(x.Manifest), InstalledAt: x.At, FirstAt: x.First, InstalledBy: x.By, From: x.From,
		Vouching: wire.LoopVouching{Tier: string(x.Tier), Format: x.Format, Publisher: x.Publisher, Registry: x.Registry},
		May:      wasmloop.Describe(x.Manifest), Worst: signed.Worst(x.Manifest, d.toolFacts), Limits: wireLimits(x.Manifest, set),
		Webhook: x.Settings.Webhook, Stopped: x.Stopped(),
	}
	return out, nil
}

func wirePreview(p signed.Preview) wire.LoopPreview {
	out := wire.LoopPreview{
		SHA256: p.SHA256, Size: p.Size, Manifest: wireManifest(p.Manifest), Vouched: p.Vouched, May: p.May, Worst: p.Worst,
		Vouching: wire.LoopVouching{Tier: string(p.Verdict.Tier), Format: p.Format, Publisher: p.Verdict.Publisher, Registry: p.Verdict.Registry},
		Limits:   wireLimits(p.Manifest, 0), Unsigned: p.Unsigned, Unknown: p.Unknown, Missing: p.Missing, Warnings: p.Warnings,
		More: p.More, Less: p.Less, Downgrade: p.Downgrade, Another: p.Another, Same: p.Same, TypeName: p.Name,
	}
	if p.Replaces != nil {
		out.Replaces = p.Replaces.Manifest.Version
		out.Limits = wireLimits(p.Manifest, p.Replaces.Settings.Timeout)
	}
	if p.Diff != nil {
		out.Added, out.Removed = p.Diff.Added, p.Diff.Removed
	}
	return out
}

func wireManifest(m wasmloop.Manifest) wire.LoopManifest {
	out := wire.LoopManifest{
		Name: m.Name, Version: m.Version, Description: m.Description, Host: m.Host, Tools: m.Tools, Capabilities: m.Capabilities,
		Schedule: m.Schedule, Events: m.Events, Webhook: m.Webhook, MemoryMB: signed.LimitsOf(m, 0).MemoryMB, Module: m.SHA256, Source: m.SourceURL,
	}
	if at := m.BuiltAtTime(); !at.IsZero() {
		out.BuiltAt = at.UnixMicro()
	}
	for _, p := range m.Provides {
		out.Provides = append(out.Provides, wire.LoopProvides{Name: p.Name, Description: p.Description, Parameters: p.Parameters})
	}
	return out
}

func wireLimits(m wasmloop.Manifest, timeout time.Duration) wire.LoopLimits {
	l := signed.LimitsOf(m, timeout)
	return wire.LoopLimits{MemoryMB: l.MemoryMB, TimeS: int64(l.Time / time.Second), Calls: l.Calls, LogBytes: l.Log, Answer: l.Answer, Record: l.Record}
}

// everyLoop is every loop by name, compiled in and signed.
func (d *Daemon) everyLoop(ctx context.Context) (out []wire.Loop, err error) {
	list, err := d.loopSet.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range list {
		shown, err := d.wireLoop(ctx, s)
		if err != nil {
			return nil, err
		}
		out = append(out, shown)
	}
	installed, err := d.signed.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, x := range installed {
		shown, err := d.signedLoop(ctx, x)
		if err != nil {
			return nil, err
		}
		out = append(out, shown)
	}
	slices.SortStableFunc(out, func(a, b wire.Loop) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// oneLoop is a loop by its name, with or without "loop:" before it.
func (d *Daemon) oneLoop(ctx context.Context, name string) (wire.Loop, error) {
	s, err := d.loopSet.Get(ctx, name)
	if err == nil {
		return d.wireLoop(ctx, s)
	}
	if !fault.Is(err, fault.NotFound) {
		return wire.Loop{}, err
	}
	x, err := d.signed.Get(ctx, name)
	if fault.Is(err, fault.NotFound) {
		return wire.Loop{}, fault.New(fault.NotFound, "no loop is called %q", strings.TrimPrefix(name, "loop:")).WithHint("the loops are %s", strings.Join(d.loopNames(), ", "))
	}
	if err != nil {
		return wire.Loop{}, err
	}
	return d.signedLoop(ctx, x)
}

// loopNames are the names of all loops, in order.
func (d *Daemon) loopNames() []string {
	names := map[string]bool{}
	for _, name := range slices.Concat(d.loopSet.Names(), d.signed.Names()) {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// signedCheck is the line of ombud doctor about signed loops.
func (d *Daemon) signedCheck() wire.Check {
	var bad []string
	names := d.signed.Names()
	for _, name := range names {
		if x, there := d.signed.Current(name); there && x.Stopped() != "" {
			bad = append(bad, name+": "+x.Stopped())
		}
	}
	if len(bad) > 0 {
		return wire.Check{ID: "signed loops", Status: "warn", Detail: strings.Join(bad, "; "), Hint: "ombud loop verify says what is wrong"}
	}
	return wire.Check{ID: "signed loops", Status: "ok", Detail: fmt.Sprintf("%d installed, none is stopped", len(names))}
}
