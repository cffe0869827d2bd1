package instance

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/fault"
)

func env(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(k string) string { return m[k] }
}

var linux = system{os: "linux", tmp: "/tmp", uid: 1000, maxLen: 107}

func TestPathsFollowXDG(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		instance string
		env      func(string) string
		home     string
		want     Instance
	}{
		"bare home": {"", env(), "/home/a", Instance{
			"default", "/home/a/.config/ombud", "/home/a/.local/state/ombud", "/home/a/.local/share/ombud", "/home/a/.cache/ombud", "/home/a/.local/state/ombud/run",
		}},
		"named": {"work", env("XDG_RUNTIME_DIR", "/run/user/1000"), "/home/a", Instance{
			"work", "/home/a/.config/ombud-work", "/home/a/.local/state/ombud-work", "/home/a/.local/share/ombud-work", "/home/a/.cache/ombud-work", "/run/user/1000/ombud-work",
		}},
		"every variable, no home": {"default", env("XDG_CONFIG_HOME", "/c", "XDG_STATE_HOME", "/s", "XDG_DATA_HOME", "/d", "XDG_CACHE_HOME", "/k", "XDG_RUNTIME_DIR", "/r"), "", Instance{
			"default", "/c/ombud", "/s/ombud", "/d/ombud", "/k/ombud", "/r/ombud",
		}},
		"relative variables are ignored": {"", env("XDG_CONFIG_HOME", "c", "XDG_RUNTIME_DIR", "./r"), "/home/a", Instance{
			"default", "/home/a/.config/ombud", "/home/a/.local/state/ombud", "/home/a/.local/share/ombud", "/home/a/.cache/ombud", "/home/a/.local/state/ombud/run",
		}},
		"one directory": {"", env("OMBUD_HOME", "/o", "XDG_CONFIG_HOME", "/c", "XDG_RUNTIME_DIR", "/r"), "/home/a", Instance{
			"default", "/o/config", "/o/state", "/o/data", "/o/cache", "/o/run",
		}},
		"one directory, named": {"b", env("OMBUD_HOME", "/o"), "", Instance{
			"b", "/o/instances/b/config", "/o/instances/b/state", "/o/instances/b/data", "/o/instances/b/cache", "/o/instances/b/run",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := newOn(linux, c.instance, c.env, c.home)
			if err != nil || got != c.want {
				t.Errorf("got  %+v, %v\nwant %+v", got, err, c.want)
			}
		})
	}
}

func TestRefusedNamesAndHomes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"A", "a b", "../x", "a/b", "a.b", "ä", strings.Repeat("a", 33), "a\n"} {
		if _, err := New(name, env(), "/home/a"); !fault.Is(err, fault.Usage) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for name, err := range map[string]error{
		"relative OMBUD_HOME": second(newOn(linux, "", env("OMBUD_HOME", "here"), "/home/a")),
		"no home":             second(newOn(linux, "", env("XDG_CONFIG_HOME", "/c"), "")),
		"relative home":       second(newOn(linux, "", env(), "home")),
	} {
		if !fault.Is(err, fault.Config) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second(_ Instance, err error) error { return err }

func TestInstancesShareNoPath(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		gen := rapid.StringMatching(`[a-z0-9-]{1,32}`)
		a, b := gen.Draw(t, "a"), gen.Draw(t, "b")
		if a == b {
			t.Skip("same name")
		}
		e := env()
		switch rapid.IntRange(0, 2).Draw(t, "variant") {
		case 1:
			e = env("OMBUD_HOME", "/o")
		case 2:
			e = env("XDG_RUNTIME_DIR", "/"+strings.Repeat("r", 120))
		}
		one, err1 := newOn(linux, a, e, "/home/a")
		two, err2 := newOn(linux, b, e, "/home/a")
		if err1 != nil || err2 != nil {
			t.Fatalf("%v, %v", err1, err2)
		}
		for _, p := range paths(one) {
			for _, q := range paths(two) {
				if p == q || strings.HasPrefix(p, q+"/") || strings.HasPrefix(q, p+"/") {
					t.Fatalf("%q and %q share %s and %s", a, b, p, q)
				}
			}
		}
	})
}

func paths(in Instance) []string {
	return []string{in.ConfigDir, in.StateDir, in.DataDir, in.CacheDir, in.RuntimeDir}
}

func TestFilesOfAnInstanceAreDistinct(t *testing.T) {
	t.Parallel()
	in, err := New("", env("OMBUD_HOME", t.TempDir()), "")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	v := reflect.ValueOf(in)
	for i := range v.NumMethod() {
		f, ok := v.Method(i).Interface().(func() string)
		if !ok {
			continue
		}
		name := v.Type().Method(i).Name
		if other := seen[f()]; other != "" {
			t.Errorf("%s and %s are both %s", name, other, f())
		}
		seen[f()] = name
	}
	if len(seen) < 9 {
		t.Errorf("only %d paths were compared", len(seen))
	}
}

func TestLongSocketPathFallsBack(t *testing.T) {
	t.Parallel()
	exact := "/" + strings.Repeat("r", 107-len("/")-len("/ombud/ombud.sock"))
	fits, err := newOn(linux, "", env("XDG_RUNTIME_DIR", exact), "/home/a")
	if err != nil || len(fits.Socket()) != 107 || !strings.HasPrefix(fits.Socket(), exact) {
		t.Errorf("107 bytes: %s, %v", fits.Socket(), err)
	}
	long, err := newOn(linux, "", env("XDG_RUNTIME_DIR", exact+"r"), "/home/a")
	if err != nil || !strings.HasPrefix(long.RuntimeDir, "/tmp/ombud-1000-") || len(long.Socket()) > 107 {
		t.Errorf("108 bytes: %s, %v", long.Socket(), err)
	}
	again, _ := newOn(linux, "", env("XDG_RUNTIME_DIR", exact+"rr"), "/home/a")
	other, _ := newOn(linux, "", env("XDG_RUNTIME_DIR", exact+"rr"), "/home/b")
	if again.RuntimeDir != long.RuntimeDir || other.RuntimeDir == long.RuntimeDir {
		t.Errorf("fallback %s, then %s, and for another home %s", long.RuntimeDir, again.RuntimeDir, other.RuntimeDir)
	}
	sys := linux
	sys.tmp = exact
	if _, err := newOn(sys, "", env("XDG_RUNTIME_DIR", exact+"r"), "/home/a"); !fault.Is(err, fault.Config) {
		t.Errorf("no short place at all: %v", err)
	}
}

func setup(t *testing.T) Instance {
	t.Helper()
	root := t.TempDir()
	sys := here()
	sys.tmp = t.TempDir()
	in, err := newOn(sys, "", env("OMBUD_HOME", filepath.Join(root, "home")), "")
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestMakeDirsMakesPrivateDirsAndIsSafeTwice(t *testing.T) {
	t.Parallel()
	in := setup(t)
	if err := in.CheckRuntime(); err != nil {
		t.Errorf("before there is anything: %v", err)
	}
	for range 2 {
		if err := in.MakeDirs(); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range append(paths(in), in.Workspace(), in.BackupDir()) {
		info, err := os.Stat(p)
		if err != nil || !info.IsDir() || openTo(info, forOthers) != 0 {
			t.Errorf("%s: %v, %v", p, info, err)
		}
	}
	if err := in.CheckRuntime(); err != nil {
		t.Error(err)
	}
}
