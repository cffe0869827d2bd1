package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/act"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/supervise"
	"github.com/ombud-run/ombud/internal/tools/notify"
	toolprocess "github.com/ombud-run/ombud/internal/tools/process"
	"github.com/ombud-run/ombud/internal/wire"
)

// The kinds of runs in which a call of no agent is made.
const (
	noticeRun   = "toolnotice" // a notice a tool process sends of its own accord
	toolTestRun = "tooltest"   // a call the operator makes to see a tool work
)

// openProcesses constructs the tool processes and makes their tools known, as they
// were registered last. None runs yet.
func (d *Daemon) openProcesses(ctx context.Context, kinds *run.Kinds) error {
	walls := d.confined.launcher.Report()
	held := walls.Confined && (walls.Seccomp || walls.Namespaces)
	d.processes = toolprocess.New(toolprocess.Deps{
		DB: d.db, Vault: d.vault, Log: d.events, Audit: d.audit, Tools: d.tools, Dir: d.o.Instance.ToolDir, Secret: d.secretFor,
		Redact: d.hide.String, Logger: d.log,
		Launch: func(ctx context.Context, s confine.Spec) (supervise.Child, error) {
			job, err := d.confined.launcher.Start(ctx, s)
			if err != nil {
				return nil, err
			}
			return job, nil
		},
		Held: func() bool { return held }, Hold: d.hold.Held,
		Notify: func(ctx context.Context, n toolprocess.Notice) error {
			_, err := d.runs.Start(ctx, run.Spec{Kind: noticeRun, Name: n.Process, Definition: "toolnotice.v1", Actor: "tool:" + n.Process, Input: n})
			return err
		},
	}, toolprocess.Config{})
	for _, k := range []run.Kind{
		{Name: noticeRun, TellUnknown: true, Handle: d.sendNotice}, {Name: toolTestRun, TellUnknown: true, Heard: true, Handle: d.testTool},
	} {
		if err := kinds.Add(k); err != nil {
			return err
		}
	}
	return d.processes.Open(ctx)
}

// secretFor is the value of a secret for the environment of a tool process, which may
// send it anywhere it reaches.
func (d *Daemon) secretFor(ctx context.Context, name string) (string, error) {
	v, err := d.secrets.Resolve(ctx, name)
	if err != nil {
		return "", err
	}
	if v.Bound() {
		return "", fault.New(fault.Denied, "it is bound to hosts, and a tool process could send it to others").
			WithHint("set a secret of its own for the tool, without --host")
	}
	return v.Reveal(), nil
}

// sendNotice makes the call by which a tool process tells the operator something.
// Policy decides on it: nobody holds the scope before the operator grants it.
func (d *Daemon) sendNotice(ctx context.Context, r *run.Run) ([]byte, error) {
	var n toolprocess.Notice
	if err := json.Unmarshal(r.Input(), &n); err != nil {
		return nil, err
	}
	subject := "tool:" + n.Process
	held, err := d.grants.For(ctx, subject, "")
	if err != nil {
		return nil, err
	}
	in, err := d.permit(subject, held)
	if err != nil {
		return nil, err
	}
	input, err := json.Marshal(notify.Input{Subject: n.Subject, Message: n.Message})
	if err != nil {
		return nil, err
	}
	res, err := d.act.Call(ctx, r, act.Call{
		Step: "send", Tool: notify.Name, Input: input, Label: label.Of(label.Untrusted(subject), label.OperatorOnly),
		Authority: &act.Authority{
			Subject: subject, Grants: in.Grants, Bounds: in.Bounds, Tier: in.Tier, Standing: in.Standing, Autonomy: in.Autonomy, Unattended: true,
		},
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(res.Status)
}

// toolTest is what a tooltest run is started with.
type toolTest struct {
	Tool  string          `json:"tool"`
	Input json.RawMessage `json:"input"`
}

// testTool makes the call the operator asked for at the operator's socket, with what
// the tool needs and nothing else.
func (d *Daemon) testTool(ctx context.Context, r *run.Run) ([]byte, error) {
	var t toolTest
	if err := json.Unmarshal(r.Input(), &t); err != nil {
		return nil, err
	}
	def, err := d.tools.Get(t.Tool)
	if err != nil {
		return nil, err
	}
	needs, err := def.Scopes(t.Input)
	if err != nil {
		return nil, err
	}
	var rules []policy.Rule
	for _, s := range needs {
		rules = append(rules, policy.Rule{Effect: policy.Allow, Scope: s})
	}
	level, err := policy.NewAutonomy(policy.Assisted, nil)
	if err != nil {
		return nil, err
	}
	res, err := d.act.Call(ctx, r, act.Call{
		Step: "call", Tool: t.Tool, Input: t.Input, Label: label.Of(label.Operator, label.OperatorOnly),
		Authority: &act.Authority{
			Subject: byOperator, Grants: policy.NewLayer("the operator's own call", rules), Tier: policy.Trusted, Standing: needs, Autonomy: level,
		},
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(res)
}

func (d *Daemon) toolsAdd(ctx context.Context, req wire.ToolsAddRequest) (out wire.ToolsAddResult, err error) {
	s := toolprocess.Spec{
		Name: req.Name, Command: req.Command, Network: req.Network, Read: req.Read, Write: req.Write, Reads: req.Reads,
		Repeatable: req.Repeatable, Timeout: time.Duration(req.TimeoutS) * time.Second,
	}
	if s.Scopes, err = parseBounds(req.Scopes); err != nil {
		return out, err
	}
	if s.Narrow, err = parseBounds(req.Narrow); err != nil {
		return out, err
	}
	for _, text := range req.Secrets {
		variable, name, ok := strings.Cut(text, "=")
		if !ok {
			return out, fault.New(fault.Invalid, "a secret is given as VARIABLE=NAME")
		}
		if s.Secrets == nil {
			s.Secrets = map[string]string{}
		}
		s.Secrets[variable] = strings.TrimPrefix(name, "secret:")
	}
	if err := s.Check(); err != nil {
		return out, err
	}
	for _, name := range s.Secrets {
		if err := d.secrets.Check(ctx, name); err != nil {
			return out, err
		}
	}
	info, err := d.processes.Add(ctx, s, byOperator)
	if err != nil {
		return out, err
	}
	out.Process, err = d.wireProcess(ctx, info)
	return out, err
}

func parseBounds(texts []string) (out []toolprocess.Bound, err error) {
	for _, text := range texts {
		b, err := toolprocess.ParseBound(text)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

func (d *Daemon) toolsRemove(ctx context.Context, req wire.ToolsRemoveRequest) (wire.Empty, error) {
	return wire.Empty{}, d.processes.Remove(ctx, req.Name, byOperator)
}

func (d *Daemon) toolsTest(ctx context.Context, req wire.ToolsTestRequest) (out wire.ToolsTestResult, err error) {
	info, notReady := d.processes.Test(ctx, req.Name)
	if info.Spec.Name == "" || ctx.Err() != nil {
		return out, notReady
	}
	if out.Process, err = d.wireProcess(ctx, info); err != nil {
		return out, err
	}
	if notReady != nil {
		out.Problem = &wire.Problem{Class: fault.ClassOf(notReady), Message: notReady.Error(), Hint: fault.HintOf(notReady)}
		return out, nil
	}
	if req.Tool != "" {
		out.Call, err = d.testCall(ctx, req)
	}
	return out, err
}

func (d *Daemon) testCall(ctx context.Context, req wire.ToolsTestRequest) (*wire.ToolsTestCall, error) {
	if err := d.hold.Refuse(); err != nil {
		return nil, err
	}
	t := toolTest{Tool: req.Name + "." + strings.TrimPrefix(req.Tool, req.Name+"."), Input: req.Input}
	if len(t.Input) == 0 {
		t.Input = json.RawMessage("{}")
	}
	if err := d.tools.Validate(t.Tool, t.Input); err != nil {
		return nil, err
	}
	id, err := d.runs.Start(ctx, run.Spec{Kind: toolTestRun, Name: t.Tool, Definition: "tooltest.v1", Actor: byOperator, Input: t})
	if err != nil {
		return nil, err
	}
	rec, err := d.runs.Wait(ctx, id)
	if err != nil {
		return nil, err
	}
	if rec.State != run.Completed {
		return nil, fault.New(rec.ErrorClass, "the test call is %s: %s", rec.State, rec.Error).WithHint("ombud explain %s", id)
	}
	var res act.Result
	if err := json.Unmarshal(rec.Result, &res); err != nil {
		return nil, err
	}
	return &wire.ToolsTestCall{
		RunID: id, Status: string(res.Status), Class: res.Class, Text: res.Text, Label: res.Label.String(), BlobID: res.Blob, TookUS: res.TookUS,
	}, nil
}

func (d *Daemon) wireProcess(ctx context.Context, i toolprocess.Info) (wire.ToolProcess, error) {
	s := i.Spec
	out := wire.ToolProcess{
		Name: s.Name, Command: s.Command, Network: s.Network, Read: s.Read, Write: s.Write, Reads: s.Reads, Repeatable: s.Repeatable,
		TimeoutS: int(s.CallTimeout() / time.Second), State: string(i.State), SinceAt: i.Since, PID: i.PID, Failures: i.Failures, CrashLoop: i.Loops,
		Error: i.Error, NextAt: i.Next, AddedAt: i.Added, ChangedAt: i.Changed, Says: i.Says, Tools: []wire.ToolProcessTool{},
	}
	if out.Network == "" {
		out.Network = "none"
	}
	for _, b := range s.Scopes {
		out.Scopes = append(out.Scopes, b.String())
	}
	for _, b := range s.Narrow {
		out.Narrow = append(out.Narrow, b.String())
	}
	for _, variable := range slices.Sorted(maps.Keys(s.Secrets)) {
		out.Secrets = append(out.Secrets, variable+"="+s.Secrets[variable])
	}
	for _, t := range i.Tools {
		access, why, err := d.processAccess(ctx, t)
		if err != nil {
			return out, err
		}
		out.Tools = append(out.Tools, wire.ToolProcessTool{
			Name: t.Name, Description: t.Description, Says: t.Says, Needs: t.Needs, Access: access, Why: why, ReadOnly: t.ReadOnly, Repeatable: t.Repeatable,
			Refused: t.Refused,
		})
	}
	return out, nil
}

// processAccess is what the default agent may do with a tool now, and why not more.
// What a tool needs does not depend on its input.
func (d *Daemon) processAccess(ctx context.Context, t toolprocess.Tool) (access, why string, err error) {
	if t.Refused != "" {
		return "", "", nil
	}
	return d.mayCall(ctx, t.Name, t.Needs)
}

// loopNotices are the processes that end again and again, each in a line.
func (d *Daemon) loopNotices() (out []string) {
	for _, i := range d.processes.List() {
		if i.Loops {
			out = append(out, fmt.Sprintf("the tool process %s ended %d times in a row: %s (ombud tools test %s)", i.Spec.Name, i.Failures, i.Error, i.Spec.Name))
		}
	}
	return out
}

// processCheck is doctor's line about tool processes.
func (d *Daemon) processCheck() wire.Check {
	c := wire.Check{ID: "tools.processes", Status: "ok"}
	var parts []string
	changed := int64(0)
	for _, i := range d.processes.List() {
		what := string(i.State)
		if i.Error != "" {
			c.Status, c.Hint = "warn", "ombud tools test NAME starts one and says what is wrong; ombud logs has what it says"
			what += ": " + i.Error
		}
		if i.Loops {
			c.Status = "fail"
		}
		changed = max(changed, i.Changed)
		parts = append(parts, i.Spec.Name+" is "+what)
	}
	c.Detail = strings.Join(parts, "; ")
	if len(parts) == 0 {
		c.Detail = "none"
	}
	if day := int64(24 * time.Hour / time.Microsecond); changed > d.db.Time()-day && c.Status == "ok" {
		c.Status, c.Hint = "warn", "ombud events --kind tool_process.changed says what changed; approvals given for the old tools are void"
		c.Detail += "; one of them registers other tools since less than a day"
	}
	return c
}
