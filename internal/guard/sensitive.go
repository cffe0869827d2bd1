package guard

import (
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/ombud-run/ombud/internal/fault"
)

// Parts of a path that hold secrets, wherever they are. An entry with slashes
// matches that many parts in a row; the case of letters does not count.
var secretParts = []string{".ssh", ".gnupg", ".aws", ".kube", ".docker", "gcloud", ".azure", ".mozilla", ".password-store",
	"keyrings", "keychains", ".config/gh", ".config/google-chrome", ".config/chromium"}

// Names of files that hold secrets.
var secretNames = []string{".env", ".netrc", "_netrc", ".pgpass", ".git-credentials", ".npmrc", ".pypirc", ".dockercfg", ".htpasswd",
	"credentials", "credentials.json", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "master.key"}

var secretEndings = []string{".env", ".pem", ".key", ".p12", ".pfx", ".jks", ".kdbx"}

// Places that belong to the system, from the root of the file system. /proc shows
// the environment and memory of every process of the same user.
var secretPlaces = []string{"/proc", "/sys", "/dev", "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh"}

// What is run by itself later: writing there is a way to run a command.
var startParts = []string{"autostart", "systemd", "cron.d", "cron.daily", "cron.hourly", "cron.weekly", "cron.monthly", "init.d", "hooks",
	"launchagents", "launchdaemons", ".git/config", ".config/fish", ".config/environment.d"}

var startNames = []string{".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zprofile",
	".zshenv", ".zlogin", ".zlogout", "authorized_keys", "crontab", ".xprofile", ".xinitrc", ".xsession", ".gitconfig", ".vimrc"}

var startPlaces = []string{"/etc", "/boot", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/var/spool/cron"}

// Sensitive tells which files no call reads or writes, whatever its scopes are.
// A nil Sensitive knows the built-in sets.
type Sensitive struct{ allow, deny []string }

// NewSensitive returns the built-in sets with exceptions: what is under a
// directory or is a file of deny always is sensitive, and what is under one of
// allow is not otherwise. Both are absolute paths.
func NewSensitive(allow, deny []string) *Sensitive {
	return &Sensitive{allow: slashed(allow), deny: slashed(deny)}
}

func slashed(paths []string) []string {
	out := make([]string, 0, len(paths))
	for _, p := range paths {
		out = append(out, filepath.ToSlash(filepath.Clean(p)))
	}
	return out
}

// Read refuses the reading of path, an absolute path without links.
func (s *Sensitive) Read(path string) error {
	return s.check("reading", path, secretParts, secretNames, secretPlaces)
}

// Write refuses the writing of path: all that is refused to Read, and what is run
// by itself later.
func (s *Sensitive) Write(path string) error {
	if err := s.check("writing", path, secretParts, secretNames, secretPlaces); err != nil {
		return err
	}
	return s.check("writing", path, startParts, startNames, startPlaces)
}

func (s *Sensitive) check(what, path string, parts, names, places []string) error {
	path = filepath.ToSlash(filepath.Clean(path))
	allowed := s.allowed(path)
	for _, spelling := range []string{strings.ToLower(path), fold(path)} {
		inside := func(dir string) bool { return isUnder(spelling, strings.ToLower(dir)) }
		name := spelling[strings.LastIndexByte(spelling, '/')+1:]
		switch {
		case s != nil && slices.ContainsFunc(s.deny, inside):
			return fault.New(fault.Denied, "%s %s is refused: it is ombud's own", what, path)
		case allowed:
		case slices.ContainsFunc(places, inside),
			slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(spelling+"/", "/"+part+"/") }),
			slices.Contains(names, name), strings.HasPrefix(name, ".env."),
			slices.ContainsFunc(secretEndings, func(end string) bool { return strings.HasSuffix(name, end) }):
			return fault.New(fault.Denied, "%s %s is refused: it is a sensitive file", what, path).
				WithHint("a path can be excepted in tools.fs.allow_sensitive")
		}
	}
	return nil
}

// allowed reports whether path, with slashes, is an exception.
func (s *Sensitive) allowed(path string) bool {
	return s != nil && slices.ContainsFunc(s.allow, func(dir string) bool { return isUnder(path, dir) })
}

// foldRune returns the smallest of the letters that differ from r in case only, in
// lower case, and nothing for a character that cannot be seen.
func foldRune(r rune) rune {
	if unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Variation_Selector, r) {
		return -1
	}
	least := r
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		least = min(least, other)
	}
	return unicode.ToLower(least)
}

func isUnder(path, dir string) bool {
	dir = strings.TrimSuffix(dir, "/")
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// fold gives one spelling to names that a file system may take for one: letters
// of any case, also those that only folding makes Latin (ſ, K), characters that some
// leave out, and on Windows names with dots, blanks or a stream at their end.
func fold(path string) string {
	parts := strings.Split(strings.Map(foldRune, path), "/")
	for i, p := range parts {
		if p == ".." || i == 0 && len(p) == 2 && p[1] == ':' {
			continue
		}
		p, _, _ = strings.Cut(p, ":")
		parts[i] = strings.TrimRight(p, ". ")
	}
	return strings.Join(parts, "/")
}
