package child

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/harness"
)

// Find returns where the program of a CLI is: configured if that names a file, else
// the first of its name in dirs. Of a package of npm it is the native program where
// there is one, not the launcher before it: a launcher that is killed leaves the
// program behind with our pipes. The error is of class NotFound.
func Find(cli harness.Name, configured string, dirs []string) (string, error) {
	if _, err := harness.ByName(cli); err != nil {
		return "", err
	}
	if configured != "" {
		if !filepath.IsAbs(configured) {
			return "", fault.New(fault.Config, "the path of %s, %q, is not absolute", cli, configured)
		}
		if !executable(configured) {
			return "", fault.New(fault.NotFound, "no program of %s is at %s", cli, configured).WithHint("correct its path in the configuration")
		}
		return native(cli, configured), nil
	}
	if cli == harness.ACP {
		return "", fault.New(fault.NotFound, "an agent of the protocol has no name to look for").WithHint("configure its command")
	}
	file := string(cli)
	if runtime.GOOS == "windows" {
		file += ".exe"
	}
	for _, dir := range dirs {
		if path := filepath.Join(dir, file); filepath.IsAbs(dir) && executable(path) {
			return native(cli, path), nil
		}
	}
	return "", fault.New(fault.NotFound, "%s is not installed: no program of that name in PATH", cli).
		WithHint("install it, or configure where it is")
}

func executable(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && (runtime.GOOS == "windows" || st.Mode().Perm()&0o111 != 0)
}

// native is the program that a script of a package starts, else what it was given,
// with its links resolved.
func native(cli harness.Name, path string) string {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return path
	}
	if !strings.HasSuffix(real, ".js") && !strings.HasSuffix(real, ".mjs") && !isScript(real) {
		return real
	}
	pkg := filepath.Dir(filepath.Dir(real)) // …/bin/x.js
	for _, pattern := range natives(cli) {
		for _, root := range []string{filepath.Join(pkg, "node_modules"), filepath.Dir(pkg), filepath.Dir(filepath.Dir(pkg)), pkg} {
			found, err := filepath.Glob(filepath.Join(root, pattern))
			if err == nil && len(found) > 0 && executable(found[0]) {
				return found[0]
			}
		}
	}
	return real
}

// natives are where the packages of this platform have their programs, below a
// node_modules or below the package itself.
func natives(cli harness.Name) []string {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	platform := map[string]string{"windows": "win32"}[runtime.GOOS]
	if platform == "" {
		platform = runtime.GOOS
	}
	exe := ""
	if runtime.GOOS == "windows" {
		exe = ".exe"
	}
	switch cli {
	case harness.Codex:
		return []string{
			"@openai/codex-" + platform + "-" + arch + "/vendor/*/bin/codex" + exe,
			"@openai/codex-" + platform + "-" + arch + "/vendor/*/codex/codex" + exe,
		}
	case harness.OpenCode:
		return []string{"opencode-" + platform + "-" + arch + "/bin/opencode" + exe}
	case harness.Claude:
		return []string{"bin/claude.exe"} // of the package, on every platform
	}
	return nil
}

// isScript says whether a file begins with "#!".
func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // only read
	var head [2]byte
	n, err := f.Read(head[:])
	return err == nil && n == 2 && string(head[:]) == "#!"
}
