package guard

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

// setup makes dir/ws, the root, beside dir/outside, which nothing may reach.
func setup(t *testing.T, s *Sensitive) (r *Root, ws, outside string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ws, outside = filepath.Join(dir, "ws"), filepath.Join(dir, "outside")
	for _, d := range []string{filepath.Join(ws, "sub"), outside} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(outside, "secret"), "outside")
	put(t, filepath.Join(ws, "a.txt"), "inside")
	r, err = OpenRoot(ws, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, ws, outside
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		if runtime.GOOS == "windows" {
			t.Skip("no right to make links here:", err)
		}
		t.Fatal(err)
	}
}

func read(r *Root, path string) (string, error) {
	f, err := r.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

func TestPathsAndLinksStayInside(t *testing.T) {
	t.Parallel()
	r, ws, outside := setup(t, nil)
	for path, target := range map[string]string{
		"in": "a.txt", "abs": filepath.Join(ws, "a.txt"), "sub/up": "../a.txt", "dir": "sub", "chain": "abs",
		"out": outside, "outfile": filepath.Join(outside, "secret"), "relout": "../outside/secret", "sub/deep": "../../outside/secret",
		"loop": "loop2", "loop2": "loop", "dirup": "sub/../../outside", "newout": filepath.Join(outside, "new"),
	} {
		link(t, target, filepath.Join(ws, path))
	}
	for _, path := range []string{"a.txt", "./sub/../a.txt", "in", "abs", "sub/up", "chain", "dir/up", filepath.Join(ws, "a.txt"), "dir/../a.txt"} {
		if got, err := read(r, path); err != nil || got != "inside" {
			t.Errorf("%s: %q, %v", path, got, err)
		}
		if abs, err := r.Resolve(path); err != nil || abs != filepath.ToSlash(filepath.Join(ws, "a.txt")) {
			t.Errorf("%s resolves to %s, %v", path, abs, err)
		}
	}
	for _, path := range []string{"..", "../outside/secret", "sub/../../outside/secret", "/etc/passwd", filepath.Join(outside, "secret"), ws + "x",
		"out", "out/secret", "outfile", "relout", "sub/deep", "dirup/secret", "newout", "dir/deep"} {
		for doing, err := range map[string]error{
			"read":    second(read(r, path)),
			"resolve": second(r.Resolve(path)),
			"stat":    second(r.Stat(path)),
			"write":   r.Write(path, []byte("x"), ""),
		} {
			if !fault.Is(err, fault.Denied) {
				t.Errorf("%s %s: %v, want denied", doing, path, err)
			}
		}
	}
	if _, err := r.Resolve("loop"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a loop of links: %v", err)
	}
	if _, err := r.Resolve("a\x00"); !fault.Is(err, fault.Invalid) {
		t.Errorf("a NUL: %v", err)
	}
	if got, err := os.ReadDir(outside); err != nil || len(got) != 1 {
		t.Errorf("outside holds %v, %v", got, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestALinkPutThereAfterTheCheckDoesNotLeadOut(t *testing.T) {
	t.Parallel()
	r, ws, outside := setup(t, nil)
	rel, err := r.resolve("sub/x", true)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(ws, "sub")); err != nil {
		t.Fatal(err)
	}
	link(t, outside, filepath.Join(ws, "sub"))
	if f, err := r.root.Create(rel); err == nil {
		f.Close()
		t.Fatal("the open went through a link out of the root")
	}
	if _, err := os.Stat(filepath.Join(outside, "x")); !os.IsNotExist(err) {
		t.Fatalf("outside: %v", err)
	}
}

func TestWriteReplacesInOneStep(t *testing.T) {
	t.Parallel()
	r, ws, _ := setup(t, nil)
	if err := r.Write("new/dir/b.txt", []byte("one"), ""); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(ws, "a.txt"), 0o640); err != nil {
		t.Fatal(err)
	}
	link(t, "a.txt", filepath.Join(ws, "l"))
	if err := r.Write("l", []byte("two"), ""); err != nil {
		t.Fatal(err)
	}
	if got, err := read(r, "a.txt"); err != nil || got != "two" {
		t.Errorf("through a link: %q, %v", got, err)
	}
	info, err := os.Lstat(filepath.Join(ws, "a.txt"))
	if err != nil || runtime.GOOS != "windows" && info.Mode() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := r.Write("sub", nil, ""); !fault.Is(err, fault.Invalid) {
		t.Errorf("writing a directory: %v", err)
	}
	if err := r.Write("a.txt/x", nil, ""); err == nil {
		t.Error("writing below a file")
	}
	left, err := filepath.Glob(filepath.Join(ws, "*.tmp"))
	if hidden, err2 := filepath.Glob(filepath.Join(ws, ".ombud-*")); err != nil || err2 != nil || len(left)+len(hidden) != 0 {
		t.Errorf("left behind: %v %v", left, hidden)
	}
}

func TestRemoveTakesTheLinkAndNotItsTarget(t *testing.T) {
	t.Parallel()
	r, ws, outside := setup(t, nil)
	link(t, "a.txt", filepath.Join(ws, "l"))
	link(t, filepath.Join(outside, "secret"), filepath.Join(ws, "out"))
	link(t, outside, filepath.Join(ws, "outdir"))
	for _, path := range []string{"l", "out", "sub"} {
		if err := r.Remove(path); err != nil {
			t.Errorf("remove %s: %v", path, err)
		}
	}
	for _, path := range []string{".", "outdir/secret", "../outside/secret", ws} {
		if err := r.Remove(path); !fault.Is(err, fault.Denied) {
			t.Errorf("remove %s: %v", path, err)
		}
	}
	if err := r.Remove("nothing"); !fault.Is(err, fault.NotFound) {
		t.Errorf("remove nothing: %v", err)
	}
	for _, path := range []string{filepath.Join(ws, "a.txt"), filepath.Join(outside, "secret")} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	put(t, filepath.Join(ws, "full"), "")
	if err := r.Write("d/x", nil, ""); err != nil {
		t.Fatal(err)
	}
	if err := r.Remove("d"); !fault.Is(err, fault.Conflict) && runtime.GOOS != "windows" {
		t.Errorf("remove a full directory: %v", err)
	}
}

func TestListIsBounded(t *testing.T) {
	t.Parallel()
	r, ws, outside := setup(t, nil)
	for _, n := range []string{"c", "b"} {
		put(t, filepath.Join(ws, n), "")
	}
	entries, more, err := r.List(".", 10)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if got := strings.Join(names, " "); got != "a.txt b c sub" || more || err != nil {
		t.Errorf("%s, %v, %v", got, more, err)
	}
	if entries, more, err := r.List(".", 2); len(entries) != 2 || !more || err != nil {
		t.Errorf("%v, %v, %v", entries, more, err)
	}
	if entries, more, err := r.List("sub", 2); len(entries) != 0 || more || err != nil {
		t.Errorf("an empty directory: %v, %v, %v", entries, more, err)
	}
	if _, _, err := r.List("a.txt", 2); err == nil {
		t.Error("a file was listed")
	}
	link(t, outside, filepath.Join(ws, "out"))
	if _, _, err := r.List("out", 2); !fault.Is(err, fault.Denied) {
		t.Errorf("a link out: %v", err)
	}
}

func TestSensitiveFilesInsideTheRoot(t *testing.T) {
	t.Parallel()
	r, ws, _ := setup(t, nil)
	put(t, filepath.Join(ws, ".env"), "KEY=1")
	link(t, ".env", filepath.Join(ws, "harmless.txt"))
	if err := os.MkdirAll(filepath.Join(ws, ".git", "hooks"), 0o700); err != nil {
		t.Fatal(err)
	}
	link(t, ".git/hooks", filepath.Join(ws, "h"))
	for _, path := range []string{".env", "harmless.txt"} {
		if _, err := read(r, path); !fault.Is(err, fault.Denied) {
			t.Errorf("read %s: %v", path, err)
		}
	}
	for _, path := range []string{"harmless.txt", "h/post-commit", ".bashrc", "sub/../.ssh/config"} {
		if err := r.Write(path, nil, ""); !fault.Is(err, fault.Denied) {
			t.Errorf("write %s: %v", path, err)
		}
	}
	if err := r.Remove(".env"); !fault.Is(err, fault.Denied) {
		t.Errorf("remove .env: %v", err)
	}
}

func TestSensitivePaths(t *testing.T) {
	t.Parallel()
	s := NewSensitive([]string{"/home/ana/ok"}, []string{"/home/ana/.local/state/ombud", "/home/ana/ok/never"})
	for path, want := range map[string]string{ // r: refused to read and write, w: to write only, -: neither
		"/home/ana/notes.txt": "-", "/home/ana/environment": "-", "/home/ana/ssh/x": "-", "/home/ana/id_rsa.pub": "-", "/home/ana/profile": "-",
		"/home/ana/.ssh/config": "r", "/home/ana/.SSH/config": "r", "/home/ana/.ssh": "r", "/home/ana/p/.env": "r", "/home/ana/.env.local": "r",
		"/home/ana/prod.env": "r", "/home/ana/.Env": "r", "/home/ana/key.PEM": "r", "/home/ana/x:key.pem": "r", "/home/ana/.env.": "r",
		"/home/ana/.env::$DATA": "r", "/home/ana/.ſſh/x": "r", "/home/ana/.\u212Aube/x": "r", "/home/ana/.s\u200csh/x": "r", "/home/ana/.e\u00adnv": "r",
		"/home/ana/.ENV\ufe0f": "r", "/home/ana/r/.g\u200dit/hooks/x": "w", "/home/ana/.ssh./x": "r", "/home/ana/.ssh /x": "r", "/home/ana/straſſe": "-", "/home/ana/.config/gcloud/x": "r", "/home/ana/.config/gh/hosts.yml": "r", "/home/ana/gh/x": "-",
		"/proc/self/environ": "r", "/etc/shadow": "r", "/etc/ssh/sshd_config": "r", "/etc/hosts": "w", "/usr/bin/x": "w", "/usrx": "-",
		"/home/ana/.bashrc": "w", "/home/ana/.config/systemd/user/x": "w", "/home/ana/r/.git/hooks/pre-commit": "w", "/home/ana/r/.git/config": "w",
		"/home/ana/r/config": "-", "/home/ana/.config/autostart/x": "w", "/home/ana/Library/LaunchAgents/x": "w",
		"/home/ana/.local/state/ombud/ombud.db": "r", "/home/ana/.local/state/ombudx": "-",
		"/home/ana/ok/.env": "-", "/home/ana/ok/never/x": "r", "/home/ana/ok/nevermore": "-", "/home/ana/okay/.env": "r", "/home/ana/ok/../.env": "r",
		"C:/Users/ana/.ssh/x": "r", "C:/Users/ana/x": "-",
	} {
		got := "-"
		if err := s.Write(path); fault.Is(err, fault.Denied) {
			got = "w"
		}
		if err := s.Read(path); fault.Is(err, fault.Denied) {
			if got = "r"; s.Write(path) == nil {
				t.Errorf("%s can be written but not read", path)
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	var builtin *Sensitive
	if builtin.Read("/home/ana/.ssh/x") == nil || builtin.Read("/home/ana/x") != nil {
		t.Error("a nil Sensitive does not know the built-in set")
	}
}

func FuzzResolve(f *testing.F) {
	for _, s := range []string{"a.txt", "../x", "sub/../../x", "/etc/passwd", "out/secret", "dir/../..", "./sub//", "a\x00", "C:x", `..\x`} {
		f.Add(s)
	}
	dir := f.TempDir()
	ws := filepath.Join(dir, "ws")
	if err := os.MkdirAll(filepath.Join(ws, "sub"), 0o700); err != nil {
		f.Fatal(err)
	}
	for name, target := range map[string]string{"out": dir, "dir": "sub", "up": ".."} {
		if err := os.Symlink(target, filepath.Join(ws, name)); err != nil {
			f.Skip(err)
		}
	}
	r, err := OpenRoot(ws, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { r.Close() })
	f.Fuzz(func(t *testing.T, path string) {
		abs, err := r.Resolve(path)
		if err != nil {
			return
		}
		root := filepath.ToSlash(r.Dir())
		if abs != root && !strings.HasPrefix(abs, root+"/") || filepath.ToSlash(filepath.Clean(abs)) != abs {
			t.Fatalf("%q resolves to %q", path, abs)
		}
		if again, err := r.Resolve(abs); err != nil || again != abs {
			t.Fatalf("%q resolves to %q, and that to %q, %v", path, abs, again, err)
		}
	})
}

func TestARepeatedWriteClearsWhatACrashLeft(t *testing.T) {
	t.Parallel()
	r, ws, _ := setup(t, nil)
	put(t, filepath.Join(ws, "sub", tempName("sub/x", "k1")), "hal")
	if err := r.Write("sub/x", []byte("whole"), "k1"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(filepath.Join(ws, "sub"))
	if err != nil || len(entries) != 1 || entries[0].Name() != "x" {
		t.Errorf("sub holds %v, %v", entries, err)
	}
}

func TestScopesAreMadeOfWhatIsReallyTouched(t *testing.T) {
	t.Parallel()
	r, ws, _ := setup(t, nil)
	link(t, "../a.txt", filepath.Join(ws, "sub", "l"))
	link(t, "../key.pem", filepath.Join(ws, "sub", "k"))
	ws = filepath.ToSlash(ws)
	for doing, f := range map[string]func(string) (string, error){"read": r.Readable, "write": r.Writable} {
		if got, err := f("sub/l"); err != nil || got != ws+"/a.txt" {
			t.Errorf("%s through a link: %s, %v", doing, got, err)
		}
		if _, err := f("sub/k"); !fault.Is(err, fault.Denied) {
			t.Errorf("%s of a sensitive file through a link: %v", doing, err)
		}
	}
	if got, err := r.Removable("sub/k"); err != nil || got != ws+"/sub/k" {
		t.Errorf("removing a link: %s, %v", got, err)
	}
	for _, path := range []string{"key.pem", ".", "sub/.."} {
		if _, err := r.Removable(path); !fault.Is(err, fault.Denied) {
			t.Errorf("removing %s: %v, want denied", path, err)
		}
	}
}
