package child

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/supervise"
)

// probeFor bounds one question to a program. The slowest takes two seconds.
const probeFor = 30 * time.Second

// Probe asks a program for its version and whether it is logged in. It uses no
// tokens. An error says that the program could not be run.
func (s *Starter) Probe(ctx context.Context, t Target) (Probe, error) {
	adapter, err := harness.ByName(t.CLI)
	if err != nil {
		return Probe{}, err
	}
	task := Task{
		CLI: t.CLI, Program: t.Program, Args0: t.Args0, State: t.State, Env: t.Env, BaseURL: t.BaseURL, Held: t.Held,
		Owner: t.Owner, Profile: t.Profile, Prompt: "none", Wall: probeFor, Dir: filepath.Join(t.State, "run"),
	}
	if err := task.check(); err != nil {
		return Probe{}, err
	}
	room, err := s.rooms.open(t.State, t.CLI)
	if err != nil {
		return Probe{}, err
	}
	defer s.clear(room)
	task.Dir = room.path("probed") // not a directory it writes to, for what it works in it may only read
	if err := os.Mkdir(task.Dir, 0o700); err != nil {
		return Probe{}, roomError(t.State, err)
	}
	p := Probe{Login: LoginUnknown}
	if t.CLI == harness.ACP {
		r, err := s.hold(ctx, &task, &plan{talk: func(d *dialogue) talker { return &acpHelloTalk{newACP(d, nil)} }}, room, adapter.Decoder(""))
		if err != nil {
			return Probe{}, err
		}
		p.Version = r.Version
		return p, nil
	}
	answer, err := s.question(ctx, &task, room, "--version")
	if err != nil {
		return Probe{}, err
	}
	p.Version = harness.ParseVersion(answer.out)
	if w, is := adapter.Warning(p.Version); is {
		p.Warning = append(p.Warning, w)
	}
	if p.Version == "" {
		return p, fault.New(fault.Unavailable, "%s does not tell its version: %s", t.CLI, fault.Cut(strings.Join(strings.Fields(answer.out), " "), 600)).
			WithHint("run %s --version", t.Program)
	}
	p.Login, p.Detail, err = s.login(ctx, &task, room)
	return p, err
}

// acpHelloTalk only asks an agent who it is.
type acpHelloTalk struct{ *acpTalk }

func (a *acpHelloTalk) line(raw []byte) bool {
	if l, is := hear(raw); is && l.Method == "" {
		a.end()
	}
	return true
}

// answer is what a program said to a question.
type answer struct {
	out  string
	code int
}

// question runs a program with other arguments, for what it prints.
func (s *Starter) question(ctx context.Context, t *Task, r *room, args ...string) (answer, error) {
	p := &plan{}
	switch t.CLI {
	case harness.Claude:
		p.claudeEnv(r, t.BaseURL)
		p.set("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1")
	case harness.Codex:
		p.set("CODEX_HOME=" + r.shared("codex"))
		args = append(args, codexQuiet[:2]...)
	case harness.Gemini:
		p.gemini(t, r)
	case harness.OpenCode:
		p.opencodeEnv(r)
	case harness.Pi:
		p.piEnv(r)
	}
	if err := r.write(p.files); err != nil {
		return answer{}, err
	}
	out := &supervise.Tail{Most: maxStderr}
	job, err := s.launcher.Start(ctx, confine.Spec{
		Path: t.Program, Args: slices.Concat([]string{t.Program}, t.Args0, args), Env: environment(s.cfg.Environ, r, p, t.Env),
		Dir: t.Dir, Stdout: out, Stderr: out, Profile: profileOf(t, r), Owner: t.Owner, Grace: s.cfg.Grace,
	})
	if err != nil {
		return answer{}, err
	}
	why := newVigil(t.Wall, 0).wait(ctx, job.Done())
	if why != "" {
		job.Stop()
	}
	exit, err := job.Wait()
	switch {
	case why == ReasonCancelled:
		return answer{}, ctx.Err()
	case why != "":
		return answer{}, fault.New(fault.Timeout, "%s %s did not end within %s", t.CLI, args[0], t.Wall)
	}
	return answer{out.String(), exit.Code}, err
}

// login asks whether a program is logged in, or reckons it where it cannot be asked.
func (s *Starter) login(ctx context.Context, t *Task, r *room) (Login, string, error) {
	key := keyOf(t.Env)
	switch {
	case t.CLI == harness.Gemini:
		if _, err := os.Stat(filepath.Join(r.state, "gemini", ".gemini", "oauth_creds.json")); err == nil {
			return LoginYes, "logged in by its own login", nil
		}
		return loginByKey(key)
	case (t.BaseURL != "" || t.Held) && t.CLI != harness.Claude, t.CLI == harness.Codex && hasKey(t.Env, "CODEX_API_KEY"):
		return loginByKey(key) // a provider of ours: its own login is not looked at
	}
	args := map[harness.Name][]string{
		harness.Claude: {"auth", "status", "--json"}, harness.Codex: {"login", "status"},
		harness.OpenCode: {"auth", "list"}, harness.Pi: {"--list-models"},
	}[t.CLI]
	said, err := s.question(ctx, t, r, args...)
	if err != nil {
		return LoginUnknown, "", err
	}
	login, detail := loginSaid(t.CLI, said)
	return login, detail, nil
}

func loginByKey(key string) (Login, string, error) {
	if key == "" {
		return LoginNo, "no key in its environment", nil
	}
	return LoginYes, "a key in " + key, nil
}

var (
	opencodeLogins = regexp.MustCompile(`[1-9][0-9]* (credential|environment variable)`)
	piModelTable   = regexp.MustCompile(`(?m)^provider\s+model\b`)
)

// loginSaid reads what a program said about its login.
func loginSaid(cli harness.Name, said answer) (Login, string) {
	is := false
	detail := oneLine(said.out)
	switch cli {
	case harness.Claude:
		var a struct {
			In     bool   `json:"loggedIn"`
			Method string `json:"authMethod"`
		}
		if at := strings.IndexByte(said.out, '{'); at < 0 || json.NewDecoder(strings.NewReader(said.out[at:])).Decode(&a) != nil {
			return LoginUnknown, detail
		}
		is, detail = a.In && said.code == 0, fault.Cut(strings.ToValidUTF8(a.Method, "\uFFFD"), 200)
	case harness.Codex:
		is = said.code == 0
	case harness.OpenCode:
		is = opencodeLogins.MatchString(said.out)
	case harness.Pi:
		is = piModelTable.MatchString(said.out) && said.code == 0
	}
	if is {
		return LoginYes, detail
	}
	return LoginNo, detail
}

var escape = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]`)

// oneLine is the last line of what a program said that says something, for a person.
func oneLine(out string) string {
	lines := strings.Split(strings.TrimSpace(escape.ReplaceAllString(strings.ToValidUTF8(out, "\uFFFD"), "")), "\n")
	return fault.Cut(strings.TrimSpace(lines[len(lines)-1]), 200)
}
