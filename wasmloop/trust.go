package wasmloop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/wholefile"
)

// Names of files in a directory of loops.
const (
	trustName = "trust.json"
	lockName  = "loops.lock"
)

// Variables of the environment that add to what is stored. Those of the described system
// are heard too.
var (
	varRegistries = []string{"OMBUD_LOOP_REGISTRIES", "KARMAX_LOOP_REGISTRIES"}
	varRevoked    = []string{"OMBUD_LOOP_REVOKED", "KARMAX_LOOP_REVOKED"}
	varCommunity  = []string{"OMBUD_LOOP_ALLOW_COMMUNITY", "KARMAX_LOOP_ALLOW_COMMUNITY"}
	varDir        = []string{"OMBUD_LOOPS_DIR", "KARMAX_LOOPS_DIR"}
)

// Dir is where artifacts and the lockfile live: what OMBUD_LOOPS_DIR says, else loops in
// the user's data directory for ombud. It is "" where there is no such directory.
func Dir() string {
	for _, name := range varDir {
		if dir := os.Getenv(name); dir != "" {
			return dir
		}
	}
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "ombud", "loops")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".local", "share", "ombud", "loops")
}

// TrustPath is where the trust of a directory of loops is stored.
func TrustPath(dir string) string { return filepath.Join(dir, trustName) }

// LockPath is where the lockfile of a directory of loops is.
func LockPath(dir string) string { return filepath.Join(dir, lockName) }

// storedTrust is the file.
type storedTrust struct {
	Registries     []string `json:"registries"`
	Revoked        []string `json:"revoked"`
	AllowCommunity bool     `json:"allow_community"`
}

// LoadTrust reads the stored trust and adds what the environment says. A directory
// without the file trusts nobody. A file that cannot be read gives a Trust with which
// nothing verifies, since it may have named revoked keys.
func LoadTrust(dir string) Trust {
	s, err := readTrust(dir)
	t := Trust{Registries: s.Registries, Revoked: s.Revoked, AllowCommunity: s.AllowCommunity, broken: err}
	t.Registries = union(t.Registries, fromEnv(varRegistries))
	t.Revoked = union(t.Revoked, fromEnv(varRevoked))
	if slices.Contains(fromEnv(varCommunity), "true") {
		t.AllowCommunity = true
	}
	return t
}

// Err is why the stored trust could not be read; nil if it was.
func (t Trust) Err() error { return t.broken }

// StoredTrust reads only the file, for a command that is editing it. Of a file that
// cannot be read it returns nothing: [LoadTrust] says why.
func StoredTrust(dir string) (registries, revoked []string, allowCommunity bool) {
	s, _ := readTrust(dir) //nolint:errcheck // SaveTrust refuses to write over it
	return s.Registries, s.Revoked, s.AllowCommunity
}

// SaveTrust writes the configuration, without the environment's additions: what the
// operator set is what is stored. It refuses to write over a file that it cannot read.
func SaveTrust(dir string, registries, revoked []string, allowCommunity bool) error {
	if _, err := readTrust(dir); err != nil {
		return fmt.Errorf("save the trust: %w; mend the file or move it away first", err)
	}
	for _, k := range slices.Concat(registries, revoked) {
		if _, err := ParseKey(k); err != nil {
			return fmt.Errorf("save the trust: %w", err)
		}
	}
	s := storedTrust{union(nil, registries), union(nil, revoked), allowCommunity}
	return writeJSON(TrustPath(dir), s)
}

func readTrust(dir string) (s storedTrust, err error) {
	data, err := os.ReadFile(TrustPath(dir)) //nolint:gosec // the directory is the caller's
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return storedTrust{}, fmt.Errorf("%w: %s: %w", ErrMalformed, TrustPath(dir), err)
	}
	return s, nil
}

// fromEnv is the list that the first variable which is set holds, with commas between.
func fromEnv(names []string) (out []string) {
	for _, name := range names {
		if v := os.Getenv(name); v != "" {
			for part := range strings.SplitSeq(v, ",") {
				out = append(out, strings.TrimSpace(part))
			}
			return out
		}
	}
	return nil
}

// union is both lists as one, sorted, without empty ones and each once.
func union(a, b []string) []string {
	out := slices.DeleteFunc(slices.Concat(a, b), func(s string) bool { return s == "" })
	slices.Sort(out)
	return slices.Compact(out)
}

// writeJSON replaces a file by v, indented. Whoever reads it, also after a crash, finds
// the old one or the new one.
func writeJSON(path string, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	return writeFile(path, b.Bytes())
}

// writeFile replaces a file, in a directory that may not be there yet.
func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return wholefile.Replace(path, data)
}
