package daemon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/wire"
)

// prey is what a program that tries to get out is aimed at.
type prey struct {
	Home, State, Socket, Agent, Host, Abstract string
	Daemon                                     int
}

// attack is one thing it tries. It must fail, and be seen as one of the words, aimed
// at something with the target in its name.
type attack struct {
	name   string
	words  []string
	target string
	do     func(p prey) error
}

func attacks() []attack {
	read := func(path string) error {
		_, err := os.ReadFile(path)
		return err
	}
	dial := func(network, address string) error {
		d := net.Dialer{Timeout: 5 * time.Second}
		conn, err := d.Dial(network, address)
		if err == nil {
			conn.Close()
		}
		return err
	}
	files := []string{"open", "read", "write"}
	shadow := files
	if os.Geteuid() != 0 {
		shadow = nil // its own mode keeps it from us: nothing of ours refuses it
	}
	return []attack{
		{"read ssh key", files, "id_ed25519", func(p prey) error { return read(filepath.Join(p.Home, ".ssh", "id_ed25519")) }},
		{"read store", files, "ombud.db", func(p prey) error { return read(filepath.Join(p.State, "ombud.db")) }},
		{"read key", files, "master.key", func(p prey) error { return read(filepath.Join(p.State, "master.key")) }},
		{"read shadow", shadow, "/etc/shadow", func(prey) error { return read("/etc/shadow") }},
		{"write outside", []string{"write", "open", "create"}, "ombud-was-here", func(p prey) error {
			return os.WriteFile("/usr/ombud-was-here", []byte("x"), 0o600)
		}},
		{"remove outside", []string{"write", "remove", "unlink", "change"}, "/etc/hostname", func(p prey) error { return unix.Unlink("/etc/hostname") }},
		{"ptrace", []string{"ptrace"}, "", func(p prey) error { return unix.PtraceAttach(p.Daemon) }},
		{"read memory", []string{"process_vm_readv", "ptrace"}, "", func(p prey) error {
			buf := make([]byte, 8)
			_, err := unix.ProcessVMReadv(os.Getppid(), []unix.Iovec{{Base: &buf[0], Len: 8}}, []unix.RemoteIovec{{Base: 4096, Len: 8}}, 0)
			return err
		}},
		{"operator socket", []string{"connect", "socket"}, "ombud.sock", func(p prey) error { return dial("unix", p.Socket) }},
		{"agent socket", []string{"connect", "socket"}, "agent.sock", func(p prey) error { return dial("unix", p.Agent) }},
		{"abstract socket", []string{"connect", "socket"}, "ombud-test-", func(p prey) error { return dial("unix", p.Abstract) }},
		{"other host", []string{"socket", "connect"}, "", func(p prey) error { return dial("tcp4", p.Host) }},
		{"other host, six", []string{"socket", "connect"}, "", func(p prey) error { return dial("tcp6", "[::1]:80") }},
		{"raw socket", []string{"socket"}, "", func(prey) error {
			_, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
			return err
		}},
		{"mount", []string{"mount"}, "", func(prey) error { return unix.Mount("none", "/tmp", "tmpfs", 0, "") }},
		{"user namespace", []string{"unshare"}, "", func(prey) error { return unix.Unshare(unix.CLONE_NEWUSER) }},
		{"user namespace by clone", []string{"clone", "clone3", "unshare"}, "", func(prey) error {
			cmd := exec.Command("/bin/true")
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS}
			return cmd.Run()
		}},
		{"enter a namespace", []string{"setns", "open", "read"}, "", func(p prey) error {
			f, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", p.Daemon))
			if err != nil {
				f, err = os.Open("/proc/self/ns/mnt")
			}
			if err != nil {
				return err
			}
			defer f.Close()
			return unix.Setns(int(f.Fd()), 0)
		}},
		{"chroot", []string{"chroot"}, "", func(prey) error { return unix.Chroot("/tmp") }},
		{"bpf", []string{"bpf"}, "", func(prey) error {
			if _, _, errno := unix.Syscall(unix.SYS_BPF, 0, 0, 0); errno != 0 {
				return errno
			}
			return nil
		}},
	}
}

// is reports whether a refusal, its word and its target, is of this attack.
func (a attack) is(refused string) bool {
	what, target, _ := strings.Cut(refused, " ")
	return slices.Contains(a.words, what) && strings.Contains(target, a.target)
}

// refusedLog keeps what ombud's log says of refusals: run, word and target.
type refusedLog struct {
	mu   sync.Mutex
	told [][2]string
}

func (l *refusedLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *refusedLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *refusedLog) WithGroup(string) slog.Handler            { return l }

func (l *refusedLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message != refusedMessage {
		return nil
	}
	attrs := map[string]string{}
	r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, [2]string{attrs["run"], attrs["what"] + " " + attrs["target"]})
	return nil
}

func (l *refusedLog) of(run string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.told {
		if t[0] == run {
			out = append(out, t[1])
		}
	}
	return out
}

// TestEscapeRole is not a test of its own: it is the program that tries to get out.
// What it is aimed at is in its last argument, in hex, as one that hides it would.
func TestEscapeRole(t *testing.T) {
	raw, err := hex.DecodeString(flag.Arg(0))
	if err != nil || len(raw) == 0 {
		t.Skip("plays a program of TestNoProgramOfAnAgentGetsOut")
	}
	var p prey
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("tried:")
	for _, a := range attacks() {
		fmt.Fprintf(&b, "\n%s: %s", a.name, oneLine(a.do(p)))
	}
	_, _ = os.Stdout.WriteString(b.String() + "\n")
	os.Exit(0)
}

// runs has an agent run a program with leave, and returns what it answers.
func runProgram(t *testing.T, c *wire.Client, conversation string, argv ...string) (reply, run string) {
	t.Helper()
	id := pending(t, c, conversation, "run "+strings.Join(argv, " "))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, err := c.ApprovalsResolve(ctx, wire.ApprovalsResolveRequest{ID: id, Decision: wire.Approve})
	if err != nil {
		t.Fatal(err)
	}
	turn, err := c.TurnWatch(ctx, wire.TurnWatchRequest{RunID: res.RunID}, func(wire.TurnNote) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return turn.Reply, res.RunID
}

// walled skips where programs have no walls, and says what is missing.
func walled(t *testing.T) confine.Report {
	t.Helper()
	l, err := confine.New(confine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := l.Report()
	if !r.Confined {
		t.Skipf("programs cannot be confined here: %v", r.Missing)
	}
	return r
}

// confined are the entries of refusals of one run.
func confined(t *testing.T, c *wire.Client, run string) (out []wire.AuditEntry) {
	t.Helper()
	got, err := c.AuditTail(t.Context(), wire.AuditTailRequest{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range got.Entries {
		if e.Kind == "confine" && e.Run == run {
			out = append(out, e)
		}
	}
	return out
}

func TestNoProgramOfAnAgentGetsOut(t *testing.T) {
	report := walled(t)
	home := t.TempDir()
	t.Setenv("HOME", home)
	if err := os.MkdirAll(filepath.Join(home, ".ssh"), 0o700); err != nil {
		t.Fatal(err)
	}
	const secret = "a key that nobody sees"
	if err := os.WriteFile(filepath.Join(home, ".ssh", "id_ed25519"), []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	var reached atomic.Int64
	host := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer host.Close()
	abstract, err := net.Listen("unix", fmt.Sprintf("@ombud-test-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	program := copyOfSelf(t)
	o := options(t, "tools:\n  shell:\n    allow: [\""+program+"\"]\n")
	seen := &refusedLog{}
	o.Logger = slog.New(seen)
	c, _ := up(t, o)
	aim, err := json.Marshal(prey{
		Home: home, State: o.Instance.StateDir, Socket: o.Instance.Socket(), Agent: o.Instance.AgentSocket(),
		Host: strings.TrimPrefix(host.URL, "http://"), Abstract: abstract.Addr().String(), Daemon: os.Getpid(),
	})
	if err != nil {
		t.Fatal(err)
	}
	said, run := runProgram(t, c, "a", program, "-test.run=^TestEscapeRole$", hex.EncodeToString(aim))
	entries := confined(t, c, run)
	if refused := seen.of(run); len(entries) != len(refused) {
		t.Errorf("%d entries for %d refusals: %q", len(entries), len(refused), refused)
	}
	for i, e := range entries {
		what, _, _ := strings.Cut(seen.of(run)[i], " ")
		if e.Subject != "agent:main" || e.Tool != "shell.exec" || e.Step == "" || e.Outcome != "denied" || e.Reason != what {
			t.Errorf("the entry for %q has %+v", seen.of(run)[i], e)
		}
		if strings.Contains(strings.Join(e.Scopes, " ")+e.Text, home) {
			t.Errorf("an entry tells where it was aimed at: %v", e.Scopes)
		}
	}
	for _, a := range attacks() {
		_, result, tried := strings.Cut(said, "\n"+a.name+": ")
		result, _, _ = strings.Cut(result, "\n")
		if !tried || result == "done" {
			t.Errorf("%s: %q", a.name, result)
		}
		if report.Observed && a.words != nil && !slices.ContainsFunc(seen.of(run), a.is) {
			t.Errorf("%s (%s) was not seen: %q", a.name, result, seen.of(run))
		}
		t.Logf("%s: %s", a.name, result)
	}
	if strings.Contains(said, secret) || reached.Load() != 0 {
		t.Errorf("it got out: %q, %d requests", said, reached.Load())
	}
	if _, err := os.Stat("/usr/ombud-was-here"); err == nil {
		t.Error("it wrote outside")
	}
	if v, err := c.AuditVerify(t.Context(), wire.AuditVerifyRequest{}); err != nil {
		t.Errorf("the audit log: %+v, %v", v, err)
	}
}

// TestProxyRole is not a test of its own: it is a program that asks for pages by the
// proxy of its environment, and directly.
func TestProxyRole(t *testing.T) {
	if flag.NArg() < 2 || flag.Arg(0) != "proxy" {
		t.Skip("plays a program of TestAProgramWithTheProxyReachesWhatMayBeFetched")
	}
	var b strings.Builder
	for _, address := range flag.Args()[1:] {
		proxy, err := url.Parse(os.Getenv("HTTP_PROXY"))
		if err != nil {
			t.Fatal(err)
		}
		for way, transport := range map[string]*http.Transport{"proxy": {Proxy: http.ProxyURL(proxy)}, "direct": {}} {
			resp, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get("http://" + address + "/")
			if err != nil {
				fmt.Fprintf(&b, "\n%s %s: %s", way, address, oneLine(err))
				continue
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			fmt.Fprintf(&b, "\n%s %s: %d %s", way, address, resp.StatusCode, strings.TrimSpace(string(body)))
		}
	}
	_, _ = os.Stdout.WriteString(b.String() + "\n")
	os.Exit(0)
}

func TestAProgramWithTheProxyReachesWhatMayBeFetched(t *testing.T) {
	if r := walled(t); !r.Namespaces {
		t.Skip("the proxy needs namespaces")
	}
	serve := func(hits *atomic.Int64) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { hits.Add(1); fmt.Fprint(w, "a page") }))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://")
	}
	var good, bad atomic.Int64
	open, closed := serve(&good), strings.Replace(serve(&bad), "127.0.0.1", "localhost", 1)
	program := copyOfSelf(t)
	o := options(t, "tools:\n  shell:\n    allow: [\""+program+"\"]\n    network: proxy\n  web:\n    allow_hosts: [127.0.0.1]\n    allow_private: true\n")
	c, _ := up(t, o)
	said, run := runProgram(t, c, "a", program, "-test.run=^TestProxyRole$", "proxy", open, closed)
	for want, has := range map[string]bool{
		"proxy " + open + ": 200 a page": true, "proxy " + closed + ": 403": true, "direct " + open + ": 200": false, "direct " + closed + ": 200": false,
	} {
		if strings.Contains(said, want) != has {
			t.Errorf("%q: %v, in %q", want, !has, said)
		}
	}
	if good.Load() != 1 || bad.Load() != 0 {
		t.Errorf("reached %d and %d times", good.Load(), bad.Load())
	}
	if !slices.ContainsFunc(confined(t, c, run), func(e wire.AuditEntry) bool { return e.Reason == "connect" && e.Subject == "agent:main" }) {
		t.Errorf("the refusal is not in the audit log: %+v", confined(t, c, run))
	}
}

func TestDoctorSaysWhatIsInForce(t *testing.T) {
	report := walled(t)
	for name, want := range map[string]map[string]string{
		"":                                     {"confinement": fmt.Sprintf("strict: Landlock ABI %d, seccomp", report.Landlock), "confinement.network": "no network", "confinement.children": "ended by"},
		"confine:\n  enforce: off\n":           {"confinement": "not confined"},
		"tools:\n  shell:\n    network: all\n": {"confinement.network": "the network of this machine"},
	} {
		c, _ := up(t, options(t, name))
		got, err := c.DoctorRun(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for id, text := range want {
			i := slices.IndexFunc(got.Checks, func(c wire.Check) bool { return c.ID == id })
			if i < 0 || !strings.Contains(got.Checks[i].Detail, text) {
				t.Errorf("%q: %s says %+v, want %q", name, id, got.Checks, text)
			}
		}
	}
}

// A job of a daemon that was killed, or of another instance, is no descendant of this
// one. Its cgroup tells.
func TestOperatorSocketRefusesJobsByTheirCgroup(t *testing.T) {
	groups, err := confine.OpenCgroups(confine.CgroupOptions{Name: confine.CgroupName(uint64(os.Getpid()), 77)})
	if err != nil {
		t.Skipf("no cgroups for this user: %v", err)
	}
	defer func() {
		if err := groups.Close(); err != nil {
			t.Error(err)
		}
	}()
	g, err := groups.New("job")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", "read go")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = cmd.Wait() }() // it ends with its input
	if in, err := confine.InJobGroup(cmd.Process.Pid); in || err != nil {
		t.Fatalf("before: %v, %v", in, err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if in, err := confine.InJobGroup(cmd.Process.Pid); !in || err != nil {
		t.Errorf("in the cgroup of a job: %v, %v", in, err)
	}
	// Seen from another daemon, whose child it is not.
	out, err := exec.Command("/proc/self/exe", "-test.run=^TestAdmitRole$", fmt.Sprint(cmd.Process.Pid)).Output()
	if err != nil || !bytes.Contains(out, []byte("may not speak as its operator")) {
		t.Errorf("another daemon answers %q: %v", out, err)
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// TestAdmitRole is not a test of its own: it is another daemon's look at who connects.
func TestAdmitRole(t *testing.T) {
	if flag.NArg() != 1 {
		t.Skip("plays a daemon of TestOperatorSocketRefusesJobsByTheirCgroup")
	}
	var pid int
	if _, err := fmt.Sscan(flag.Arg(0), &pid); err != nil {
		t.Skip("it is given no process")
	}
	w := bufio.NewWriter(os.Stdout)
	fmt.Fprintln(w, admitOperator(wire.Peer{PID: pid, UID: os.Getuid()}))
	_ = w.Flush()
	os.Exit(0)
}
