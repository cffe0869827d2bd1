//go:build unix

package shell

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/policy"
	"github.com/ombud-run/ombud/internal/scope"
	"github.com/ombud-run/ombud/internal/tool"
)

// wrapped is every way in the matrix to have one program start another. %q in an
// argument stands for the command as one text, "…" for its words as arguments.
var wrapped = [][]string{
	{"…"}, {"env", "…"}, {"env", "-i", "…"}, {"env", "-S", "%q"}, {"env", "LD_PRELOAD=./x.so", "…"}, {"env", "PATH=.:/bin", "…"},
	{"env", "GIT_SSH_COMMAND=%q", "git", "fetch"}, {"env", "GIT_EXTERNAL_DIFF=%q", "git", "diff"}, {"env", "PAGER=%q", "man", "ls"},
	{"git", "-c", "core.pager=%q", "log"}, {"git", "-c", "alias.x=!%q", "x"}, {"git", "--exec-path=.", "x"},
	{"timeout", "5", "…"}, {"nice", "…"}, {"nice", "-n", "5", "…"}, {"nohup", "…"}, {"setsid", "…"}, {"stdbuf", "-o0", "…"}, {"time", "…"},
	{"ionice", "…"}, {"taskset", "1", "…"}, {"flock", "x", "…"}, {"unshare", "…"}, {"chroot", "/", "…"}, {"strace", "…"}, {"script", "-c", "%q"},
	{"watch", "%q"}, {"xargs", "…"}, {"xargs", "-I{}", "…"}, {"parallel", "%q"}, {"find", ".", "-exec", "…", ";"}, {"find", ".", "-execdir", "…", "+"},
	{"sh", "-c", "%q"}, {"bash", "-c", "%q"}, {"bash", "-lc", "%q"}, {"dash", "-c", "%q"}, {"zsh", "-c", "%q"}, {"sh", "-c", "eval %q"},
	{"busybox", "…"}, {"busybox", "sh", "-c", "%q"}, {"toybox", "…"}, {"python3", "-c", "import os; os.system('%q')"}, {"perl", "-e", "exec '%q'"},
	{"ruby", "-e", "exec '%q'"}, {"node", "-e", "require('child_process').execSync('%q')"}, {"awk", `BEGIN{system("%q")}`}, {"sed", "1e %q"},
	{"tar", "-cf", "x", ".", "--checkpoint=1", "--checkpoint-action=exec=%q"}, {"make", "-f", "-"}, {"vim", "-c", "!%q"}, {"less", "+!%q"},
	{"sort", "--compress-program=%q"}, {"ssh", "-o", "ProxyCommand=%q", "x"}, {"rsync", "-e", "%q", "x:", "."}, {"gdb", "-ex", "!%q"},
	{"sudo", "…"}, {"doas", "…"}, {"su", "-c", "%q"}, {"/lib64/ld-linux-x86-64.so.2", "…"}, {"/proc/self/exe", "…"}, {"/proc/self/root/bin/sh", "-c", "%q"},
	{"exec", "…"}, {"command", "…"}, {"builtin", "…"}, {".", "…"}, {"eval", "%q"}, {"\\…"},
}

func wrap(form, command []string) (argv []string) {
	text := strings.Join(command, " ")
	for _, arg := range form {
		switch arg {
		case "…":
			argv = append(argv, command...)
		case "\\…":
			argv = append(append(argv, "\\"+command[0]), command[1:]...)
		default:
			argv = append(argv, strings.ReplaceAll(arg, "%q", text))
		}
	}
	return argv
}

// spellings are ways to name the program at path, which is in dir and not listed.
func spellings(t *testing.T, dir, path string) (out []string) {
	t.Helper()
	name := filepath.Base(path)
	for link, target := range map[string]string{"link": path, "cat": path, "chain": "link", "ls": path} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(path, filepath.Join(dir, "hard")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(path), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	return []string{
		name, path, "./link", "link", "./cat", "./ls", "./chain", "./hard", "bin/" + name, filepath.Join(dir, "cat"), filepath.Join(dir, "chain"),
		filepath.Join(dir, "hard"), "/proc/self/root" + path, "/proc/self/cwd/link", "//" + path, filepath.Dir(path) + "/./" + name,
		filepath.Dir(path) + "/../" + filepath.Base(filepath.Dir(path)) + "/" + name, strings.ToUpper(name), name + " ", " " + name, name + "\t", name + "\x00",
		path + "/", path + "/.", "~/" + name, "$(which " + name + ")", "`" + name + "`", name + ";", "../" + name, "{" + name + ",}", "'" + name + "'",
	}
}

// TestADeniedCommandStaysDeniedHoweverItIsStarted crosses the ways to start a program
// with the spellings of one that must not run. It is not listed: then the call is
// refused before anybody is asked and nothing has run. Or it is listed and so is the
// wrapper, and a rule denies it: then the wrapper is denied as well.
func TestADeniedCommandStaysDeniedHoweverItIsStarted(t *testing.T) {
	t.Parallel()
	bin, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	canary := filepath.Join(bin, "forbidden")
	script(t, canary)
	b := setup(t, Config{Allow: []string{"ls", "cat", "echo"}})
	def, err := b.reg.Get("shell.exec")
	if err != nil {
		t.Fatal(err)
	}
	names := spellings(t, b.dir, canary)
	cells := 0
	for _, form := range wrapped {
		for _, name := range names {
			argv := wrap(form, []string{name, "-x"})
			in := args(input{Argv: argv, Stdin: "x:\n\t" + name + "\n"})
			if need, err := def.Scopes(in); !fault.Is(err, fault.Denied) {
				t.Errorf("%q needs %v, %v, want denied before anybody is asked", argv, need, err)
			}
			if out, err := b.inv.Call(t.Context(), "shell.exec", tool.Invocation{Input: in}); err == nil {
				_ = out.Reader.Close() // the error to tell is that it ran
				t.Errorf("%q ran", argv)
			}
			cells++
		}
	}
	t.Logf("%d cells", cells)
}

// TestWhatStartsOthersIsDeniedWithThem: with everything listed and free but one
// program, which a rule denies, no listed program that starts others is free; with
// only the wrapper granted it is not enough either.
func TestWhatStartsOthersIsDeniedWithThem(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, name := range append([]string{"busybox", "toybox", "python3", "python3.12", "perl5.36", "lua5.4"}, wrappers...) {
		p := program{name: name, path: "/usr/bin/" + name, real: "/usr/bin/" + name}
		if !p.runsOthers() {
			t.Errorf("%s is taken for a program that starts no other", name)
		}
		where, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		dir := t.TempDir()
		s, err := New(Config{Allow: []string{filepath.Clean(where)}, Dir: dir}, guardByName{}, nil)
		if err != nil || len(s.Missing()) > 0 {
			continue // a link to another wrapper has to be listed by that one's name
		}
		need, err := s.definition().Scopes(args(input{Argv: []string{name, "x"}}))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		seen++
		for what, rules := range map[string][]policy.Rule{
			"a denied program": {{Scope: scope.Must("shell.exec"), Effect: policy.Allow}, {Scope: scope.Must("shell.exec:/usr/bin/forbidden"), Effect: policy.Deny}},
			"its name alone":   {{Scope: need[0], Effect: policy.Allow}},
		} {
			d := policy.Decide(&policy.Input{
				Subject: "agent:a", Tool: policy.ToolFacts{Name: "shell.exec"}, Scopes: need, Grants: policy.NewLayer("grants", rules), Tier: policy.Trusted,
			})
			if d.Effect != policy.Deny {
				t.Errorf("%s with %s is %s", name, what, d.Effect)
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d of the wrappers were found here", seen)
	}
	for _, name := range []string{"ls", "cat", "date", "df", "du", "echo", "head", "pwd", "tail", "uname", "uptime", "wc"} {
		if (program{name: name, path: "/bin/" + name, real: "/bin/" + name}).runsOthers() {
			t.Errorf("%s is taken for a program that starts others", name)
		}
		if (program{name: name, path: "/bin/" + name, real: "/bin/busybox"}).runsOthers() {
			t.Errorf("%s of busybox is taken for a program that starts others", name)
		}
	}
}

// TestAChildHasNothingOfTheDaemonsEnvironment: an input cannot set a variable, so
// the tricks that need one have no place to stand.
func TestAChildHasNothingOfTheDaemonsEnvironment(t *testing.T) {
	for _, name := range []string{"LD_PRELOAD", "LD_LIBRARY_PATH", "GIT_SSH_COMMAND", "GIT_DIR", "BASH_ENV", "ENV", "PYTHONSTARTUP", "PERL5OPT", "IFS", "HOME", "ANTHROPIC_API_KEY"} {
		t.Setenv(name, "/tmp/nothing-of-ours")
	}
	t.Setenv("PATH", "/tmp/nothing-of-ours:"+os.Getenv("PATH"))
	b := setup(t, Config{Allow: []string{"env"}})
	if got := b.run(input{Argv: []string{"env"}}); strings.Contains(got, "nothing-of-ours") || strings.Count(got, "=") != 2 {
		t.Errorf("a child sees\n%s", got)
	}
	raw := json.RawMessage(`{"argv":["env"],"env":{"LD_PRELOAD":"x"}}`)
	if err := b.reg.Validate("shell.exec", raw); !fault.Is(err, fault.Invalid) {
		t.Errorf("variables in the input: %v", err)
	}
}

// TestSensitiveFilesStayOutOfArguments crosses the forms in which an argument names
// a file with the spellings of a sensitive one.
func TestSensitiveFilesStayOutOfArguments(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".ssh", "id_rsa"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"note": ".ssh/id_rsa", "d": ".ssh", "chain": "note"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(Config{Allow: []string{"cat"}, Dir: dir}, guard.NewSensitive(nil, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	scopes := s.definition().Scopes
	for _, path := range []string{
		".ssh/id_rsa", "./.ssh/id_rsa", ".ssh//id_rsa", "x/../.ssh/id_rsa", dir + "/.ssh/id_rsa", "note", "chain", "d/id_rsa", "d/../.ssh/id_rsa", ".SSH/id_rsa",
		".ssh", "d", "/etc/shadow", "/etc/../etc/shadow", "/proc/self/environ", "/proc/self/root/etc/shadow", "/proc/self/fd/0", "/dev/mem", "/proc/1/cwd",
	} {
		for _, form := range []string{"%", "--file=%", "-f=%", "@%", "if=%", "user:%", "a=b=%", "a:b:%", "x,%", "file:%"} {
			arg := strings.ReplaceAll(form, "%", path)
			if need, err := scopes(args(input{Argv: []string{"cat", arg}})); !fault.Is(err, fault.Denied) {
				t.Errorf("%s needs %v, %v, want denied", arg, need, err)
			}
		}
	}
	for _, arg := range []string{"-f/etc/shadow", "file:///etc/shadow", "-I" + dir + "/note"} {
		if _, err := scopes(args(input{Argv: []string{"cat", arg}})); !fault.Is(err, fault.Denied) {
			t.Errorf("%s: %v, want denied", arg, err)
		}
	}
	for _, cwd := range []string{".ssh", "d", "x/../d"} {
		if _, err := scopes(args(input{Argv: []string{"cat", "id_rsa"}, Cwd: cwd})); err == nil {
			t.Errorf("in %s it may run", cwd)
		}
	}
	for _, arg := range []string{"notes.txt", "a=b", "--color=auto", "12:30", "a@b.example", "/tmp/x"} {
		if _, err := scopes(args(input{Argv: []string{"cat", arg}})); err != nil {
			t.Errorf("%s: %v", arg, err)
		}
	}
}
