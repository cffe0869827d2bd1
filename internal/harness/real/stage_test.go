//go:build harness

package real

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/harness"
	"github.com/ombud-run/ombud/internal/harness/child"
	"github.com/ombud-run/ombud/internal/harness/fakeapi"
	"github.com/ombud-run/ombud/internal/harness/keyproxy"
)

// patience is for a slow machine: nothing waits for it that goes well.
const patience = 2 * time.Minute

// versions are those that scripts/harness pins.
var versions = map[harness.Name]string{
	harness.Claude: "2.1.332", harness.Codex: "0.171.0", harness.OpenCode: "1.18.33", harness.Gemini: "0.61.0", harness.Pi: "1.6.0",
	harness.ACP: "0.16.2",
}

// all are the programs, in the order of how quick they are.
var all = []harness.Name{harness.Codex, harness.Claude, harness.Pi, harness.Gemini, harness.OpenCode}

// each runs a test for each program that is there.
func each(t *testing.T, which []harness.Name, test func(t *testing.T, cli harness.Name)) {
	t.Helper()
	t.Parallel()
	for _, cli := range which {
		t.Run(string(cli), func(t *testing.T) {
			t.Parallel()
			test(t, cli)
		})
	}
}

// stage is a launcher with walls, a program and the API it is led to.
type stage struct {
	t        testing.TB
	cli      harness.Name
	launcher *confine.Launcher
	loose    bool // the system cannot hold its programs
	starter  *child.Starter
	api      *fakeapi.Server
	run      *fakeapi.Run
	keys     *keyproxy.Broker // has the key, as a daemon does
	bare     bool             // the program has it
	home     string           // of the operator; no program may touch it
	dir      string
	state    string

	mu      sync.Mutex
	refused []string // what was asked of the proxy and refused
	tries   string   // what it is known to ask for, in vain
}

// set makes a stage with walls.
func set(t *testing.T, cli harness.Name, sc fakeapi.Scenario) *stage {
	t.Helper()
	return stand(t, cli, sc, confine.EnforceStrict)
}

// lesser has the tests run as on a system that cannot hold a program.
var lesser = flag.Bool("real.lesser", false, "run the programs as on a system without namespaces, Landlock and seccomp")

// bareSystem is such a system.
type bareSystem struct{}

func (bareSystem) Landlock() int     { return 0 }
func (bareSystem) Seccomp() bool     { return false }
func (bareSystem) Namespaces() error { return errors.New("not here") }

// stand makes a stage. The network of its programs leads to the proxy that has the key, and
// nowhere else; of those that have it themselves, to the API.
func stand(t testing.TB, cli harness.Name, sc fakeapi.Scenario, enforce confine.Enforce) *stage {
	t.Helper()
	program(t, cli) // or there is no test
	s := &stage{t: t, cli: cli, api: fakeapi.New(t), home: room(t), dir: room(t), state: room(t)}
	s.run = s.api.Run(sc)
	s.keys = keyproxy.New(keyproxy.Config{})
	t.Cleanup(func() {
		if err := s.keys.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s.write(filepath.Join(s.home, ".gitconfig"), "[user]\nname = operator\n")
	s.write(filepath.Join(s.dir, "note.txt"), "seven boilers\n")
	var err error
	options := confine.Options{Home: s.home, Enforce: enforce, Proxy: func(ln net.Listener, o confine.Owner) func() {
		way, held := s.keys.Way(o.Run)
		host := way.Address
		if !held {
			host = strings.TrimPrefix(s.api.URL, "http://")
		}
		egress, err := guard.NewEgress(guard.EgressConfig{OnlyHosts: []string{host}, AllowHosts: []string{host}})
		if err != nil {
			t.Error(err)
		}
		return guard.NewProxy(guard.ProxyConfig{Egress: egress, OnRefused: func(target string, _ error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.refused = append(s.refused, target)
		}}).Serve(ln)
	}}
	if *lesser {
		options.System = bareSystem{}
	}
	if s.launcher, err = confine.New(options); err != nil {
		t.Fatal(err)
	}
	if r := s.launcher.Report(); enforce == confine.EnforceStrict && !(r.Namespaces && r.Confined) {
		// The programs are tested all the same, and what holds them is not.
		t.Logf("without all walls: there is no %q", r.Missing)
		s.loose, options.Enforce = true, confine.EnforceBest
		if s.launcher, err = confine.New(options); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(s.launcher.Close)
	s.starter = child.New(s.launcher, child.Config{Environ: []string{
		"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "DAEMON_SECRET=" + daemonSecret, "ANTHROPIC_BASE_URL=http://198.51.100.1", "HOME=" + s.home,
	}})
	return s
}

// room is a directory as a daemon has them: gemini takes no settings from below one
// that others may write to, and those of tests are below /tmp.
func room(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(cache, "ombud-harness-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// daemonSecret is in the environment of the daemon, and no program may see it.
const daemonSecret = "of-the-daemon-alone"

func (s *stage) write(path, text string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// task is what every test gives, with a prompt.
func (s *stage) task(prompt string) child.Task {
	s.t.Helper()
	path, args0, _ := program(s.t, s.cli)
	t := child.Task{
		CLI: s.cli, Program: path, Args0: args0, Version: versions[s.cli], Prompt: prompt, Dir: s.dir, State: s.state,
		Wall: patience, BaseURL: s.run.URL, Env: []string{"ANTHROPIC_API_KEY=" + s.run.Key},
	}
	if s.loose {
		t.Profile = confine.HarnessProfile(s.dir, s.state)
		t.Profile.Network = confine.NetAll
	}
	switch s.cli {
	case harness.Codex:
		t.BaseURL, t.Env, t.Model = s.run.URL+"/v1", []string{"FAKE_API_KEY=" + s.run.Key}, codexModel
	case harness.OpenCode:
		t.BaseURL, t.Model = s.run.URL+"/v1", "anthropic/lab-1"
	case harness.Gemini:
		t.Env, t.Model = []string{"GEMINI_API_KEY=" + s.run.Key}, "gemini-2.5-flash"
	case harness.Pi:
		t.Model = "anthropic/lab-1"
	case harness.ACP:
		t.BaseURL, t.Env = "", append(t.Env, "ANTHROPIC_BASE_URL="+s.run.URL, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "ENABLE_TOOL_SEARCH=false")
	}
	if !s.bare {
		s.hold(&t)
	}
	return t
}

// hold keeps the key of a task from its program, where that can be done.
func (s *stage) hold(t *child.Task) {
	s.t.Helper()
	variable, key, _ := strings.Cut(t.Env[0], "=")
	v, is := child.VendorOf(t.CLI, t.Model, variable, t.BaseURL)
	if is != (t.CLI != harness.ACP) {
		s.t.Fatalf("the key of %s is held: %v", t.CLI, is)
	}
	if !is {
		return
	}
	t.Owner.Run = "run_of_" + s.t.Name()
	l, err := s.keys.Lend(t.Owner.Run, v.Upstream, key)
	if err != nil {
		s.t.Fatal(err)
	}
	t.Env, t.BaseURL, t.Held = []string{variable + "=" + l.Token}, l.BaseURL, true
}

// play runs a task to its end.
func (s *stage) play(t child.Task) harness.Record {
	s.t.Helper()
	rec, err := s.starter.Run(s.t.Context(), t)
	if err != nil {
		s.t.Fatal(err)
	}
	s.look(rec, t)
	return rec
}

// look checks what holds of every run: the keys stay where they belong, and nothing
// was asked of the network but the API.
func (s *stage) look(rec harness.Record, t child.Task) {
	s.t.Helper()
	raw, err := json.Marshal(rec)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, secret := range []string{s.run.Key, daemonSecret} {
		if strings.Contains(string(raw), secret) {
			s.t.Errorf("a secret is in the record: %s", raw)
		}
	}
	for _, q := range s.run.Requests() {
		if q.Leaked {
			s.t.Errorf("the key is in what the model is told, or in an address: %s %s", q.Method, q.Path)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.refused, func(target string) bool { return target != s.tries }) {
		s.t.Errorf("it asked for %q", s.refused)
	}
	if rec.CLI != s.cli || rec.Version != "" && rec.Version != versions[s.cli] {
		s.t.Errorf("it says that it is %s %s", rec.CLI, rec.Version)
	}
	if got := files(s.t, s.home); !slices.Equal(got, []string{".gitconfig"}) {
		s.t.Errorf("it touched the operator's home: %q", got)
	}
}

// completed checks a run that went well.
func (s *stage) completed(rec harness.Record, text string) {
	s.t.Helper()
	if rec.Outcome != harness.Completed || !strings.Contains(rec.Text, text) || rec.Error != "" || rec.Session == "" {
		s.fail(rec, "it did not complete with %q", text)
	}
}

// fail shows a record.
func (s *stage) fail(rec harness.Record, format string, args ...any) {
	s.t.Helper()
	raw, _ := json.MarshalIndent(rec, "", " ") // of a record there is always one
	s.t.Errorf(format+"\n%s", append(args, raw)...)
	for _, q := range s.run.Requests() {
		s.t.Logf("%s %s: %d", q.Method, q.Path, q.Status)
	}
}

// files are all files below a directory.
func files(t testing.TB, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone while we look
		}
		if err == nil && !d.IsDir() {
			rel, err := filepath.Rel(dir, path)
			out = append(out, rel)
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// reading is the call that reads note.txt.
func (s *stage) reading() fakeapi.Call {
	type object = map[string]string
	path := filepath.Join(s.dir, "note.txt")
	switch s.cli {
	case harness.Claude:
		return fakeapi.CallOf("^Read$", object{"file_path": path})
	case harness.Codex:
		return fakeapi.CallOf("^exec_command$", object{"cmd": "cat note.txt"})
	case harness.Gemini:
		return fakeapi.CallOf("^read_file$", object{"file_path": path})
	case harness.Pi:
		return fakeapi.CallOf("^read$", object{"path": path})
	}
	return fakeapi.CallOf("^read$", object{"filePath": path})
}

// writing is the call that writes new.txt. It is made though it may not be offered.
func (s *stage) writing() fakeapi.Call {
	type object = map[string]string
	path := filepath.Join(s.dir, "new.txt")
	name, input := "write", object{"filePath": path, "content": "written\n"}
	switch s.cli {
	case harness.Claude:
		name, input = "Write", object{"file_path": path, "content": "written\n"}
	case harness.Codex:
		name, input = "exec_command", object{"cmd": "echo written > new.txt"}
	case harness.Gemini:
		name, input = "write_file", object{"file_path": path, "content": "written\n"}
	case harness.Pi:
		input = object{"path": path, "content": "written\n"}
	}
	call := fakeapi.CallOf("^"+name+"$", input)
	call.Name = name
	return call
}

// shell is the call that runs a command.
func (s *stage) shell(command string) fakeapi.Call {
	type object = map[string]string
	switch s.cli {
	case harness.Claude:
		return fakeapi.CallOf("^Bash$", object{"command": command, "description": "wait"})
	case harness.Codex:
		return fakeapi.CallOf("^exec_command$", object{"cmd": command})
	case harness.Gemini:
		return fakeapi.CallOf("^run_shell_command$", object{"command": command})
	}
	return fakeapi.CallOf("^bash$", object{"command": command, "description": "wait"})
}

// runs skips where the program cannot run a command: without walls of ours codex makes
// some of its own, from namespaces.
func (s *stage) runs() {
	s.t.Helper()
	if s.loose && s.cli == harness.Codex {
		s.t.Skip("codex runs no command where neither its walls nor ours can be made")
	}
}

// permits answers everything the same, and keeps what was asked.
type permits struct {
	answer child.Answer

	mu    sync.Mutex
	asked []child.Ask
}

func (p *permits) permit(_ context.Context, a child.Ask) child.Answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, a)
	return p.answer
}

func (p *permits) all() []child.Ask {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

// commands are the command lines of all processes that match.
func commands(t *testing.T, expr string) (out []string) {
	t.Helper()
	re := regexp.MustCompile(expr)
	dirs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range dirs {
		raw, err := os.ReadFile(path)
		if line := strings.ReplaceAll(string(raw), "\x00", " "); err == nil && re.MatchString(line) {
			out = append(out, line)
		}
	}
	return out
}

// until waits for what is to come.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late:
			t.Errorf("never: %s", what)
			return
		}
	}
}
