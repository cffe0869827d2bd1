package config

import (
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// value is what was written for a key, before it has a type.
type value struct {
	text  string
	items []item // of a list
	list  bool
	at    Source
}

type item struct {
	text string
	at   Source
}

func text(s string) value { return value{text: s, at: Source{Kind: FromDefault}} }

func items(list ...string) value {
	v := value{list: true, at: Source{Kind: FromDefault}}
	for _, s := range list {
		v.items = append(v.items, item{s, v.at})
	}
	return v
}

// String writes the value as one line of YAML.
func (v value) String() string {
	if !v.list {
		return quoted(v.text)
	}
	parts := make([]string, len(v.items))
	for i, it := range v.items {
		parts[i] = quoted(it.text)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

var plainYAML = regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9/._@:-]*$`)

// quoted writes a text so that YAML reads it back the same.
func quoted(s string) string {
	if plainYAML.MatchString(s) && !strings.HasSuffix(s, ":") && s != "null" {
		return s
	}
	return strconv.Quote(s)
}

// complaint is what a parser has to say; item is the place in a list, or -1.
type complaint struct {
	item int
	msg  string
	near string
}

func (c *complaint) Error() string { return c.msg }

func complain(format string, args ...any) error {
	return &complaint{item: -1, msg: fmt.Sprintf(format, args...)}
}

// one returns the text of a value that must not be a list.
func (v value) one() (string, error) {
	if v.list {
		return "", complain("takes one value, not a list")
	}
	return v.text, nil
}

// many returns the texts of a list, none of them empty, blank around or twice.
func (v value) many() ([]string, error) {
	if !v.list {
		return nil, complain("takes a list: write [%s]", v.text)
	}
	out := make([]string, 0, len(v.items))
	seen := make(map[string]bool, len(v.items))
	for i, it := range v.items {
		switch {
		case it.text == "" || strings.TrimSpace(it.text) != it.text:
			return nil, &complaint{item: i, msg: fmt.Sprintf("%q is empty or has spaces around it", it.text)}
		case seen[it.text]:
			return nil, &complaint{item: i, msg: fmt.Sprintf("%q is in the list twice", it.text)}
		}
		seen[it.text] = true
		out = append(out, it.text)
	}
	return out, nil
}

// manyOf is many with a check of each.
func (v value) manyOf(ok func(string) bool, what string) ([]string, error) {
	out, err := v.many()
	if err != nil {
		return nil, err
	}
	for i, s := range out {
		if !ok(s) {
			return nil, &complaint{item: i, msg: fmt.Sprintf("%q is not %s", s, what)}
		}
	}
	return out, nil
}

func parseText(v value) (string, error) { return v.one() }

func parseList(v value) ([]string, error) { return v.many() }

func parseAutoText(v value) (string, error) {
	s, err := v.one()
	if err == nil && (s == "" || strings.ContainsAny(s, " \t\n")) {
		err = complain("%q is not the name of a model", s)
	}
	if s == auto {
		s = ""
	}
	return s, err
}

func parseTools(v value) ([]string, error) {
	if !v.list && v.text == all {
		return nil, nil
	}
	return v.many()
}

func parseStore(v value) (Store, error) {
	s, err := v.one()
	if err != nil || s == "sqlite" {
		return Store{}, err
	}
	// The text may hold a password, so no message repeats it or url's own error.
	u, uerr := url.Parse(s)
	if uerr != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Opaque != "" {
		return Store{}, &complaint{item: -1, msg: "is neither sqlite nor postgres://user@host/database", near: nearest(s, []string{"sqlite"})}
	}
	return Store{Postgres: Secret{s}}, nil
}

// oneOf reads a value that is one of some words.
func oneOf(words ...string) func(value) (string, error) {
	return func(v value) (string, error) {
		s, err := v.one()
		if err == nil && !slices.Contains(words, s) {
			err = &complaint{item: -1, msg: fmt.Sprintf("%q is none of %s", s, strings.Join(words, ", ")), near: nearest(s, words)}
		}
		return s, err
	}
}

func parseLog(v value) (Log, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	s, err := v.one()
	if err != nil {
		return Log{}, err
	}
	level, ok := levels[s]
	if !ok {
		return Log{}, &complaint{item: -1, msg: fmt.Sprintf("%q is not a level", s), near: nearest(s, []string{"debug", "info", "warn", "error"})}
	}
	return Log{Level: level}, nil
}

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,31}$`)

const nameRule = "a name of 1 to 32 of a-z, 0-9, - and _"

func parseName(v value) (string, error) {
	s, err := v.one()
	if err == nil && !nameRE.MatchString(s) {
		err = complain("%q is not %s", s, nameRule)
	}
	return s, err
}

func parseNoneName(v value) (string, error) {
	if !v.list && v.text == none {
		return "", nil
	}
	return parseName(v)
}

func parseModel(v value) (ModelRef, error) {
	s, err := v.one()
	if err != nil || s == auto {
		return ModelRef{}, err
	}
	provider, model, slash := strings.Cut(s, "/")
	if !nameRE.MatchString(provider) || slash && model == "" || strings.ContainsAny(model, " \t\n") {
		return ModelRef{}, complain("%q is neither provider/model, nor a provider, nor auto", s)
	}
	return ModelRef{provider, model}, nil
}

var envNameRE = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

func parseEnvName(v value) (string, error) {
	s, err := v.one()
	if err != nil || s == none {
		return "", err
	}
	if !envNameRE.MatchString(s) {
		// It may well be the key itself: do not repeat it.
		return "", complain("is not the name of an environment variable; write the name, never the key")
	}
	return s, nil
}

func parseBaseURL(v value) (string, error) {
	s, err := v.one()
	if err != nil {
		return "", err
	}
	u, uerr := url.Parse(s)
	if uerr != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", complain("is not an http or https address without user, query and fragment")
	}
	return strings.TrimRight(s, "/"), nil
}

var amountRE = regexp.MustCompile(`^([0-9]{1,9})(?:\.([0-9]+))?$`)

// parseMicro reads dollars without ever passing through a binary fraction.
func parseMicro(s string) (MicroUSD, error) {
	m := amountRE.FindStringSubmatch(s)
	switch {
	case m == nil:
		return 0, complain("%q is not an amount such as 2.50, up to 999999999", s)
	case len(m[2]) > 6:
		return 0, complain("%q is finer than a millionth of a dollar", s)
	}
	n, err := strconv.ParseInt(m[1]+m[2]+strings.Repeat("0", 6-len(m[2])), 10, 64)
	if err != nil {
		return 0, complain("%q is not an amount", s)
	}
	return MicroUSD(n), nil
}

func parseAmount(v value) (MicroUSD, error) {
	s, err := v.one()
	if err != nil {
		return 0, err
	}
	return parseMicro(s)
}

// sameAsInput stands for cache prices not given until check replaces it.
const sameAsInput MicroUSD = -1

func parseCachePrice(v value) (MicroUSD, error) {
	if !v.list && v.text == asInput {
		return sameAsInput, nil
	}
	return parseAmount(v)
}

func parseLimit(v value) (Limit, error) {
	if !v.list && v.text == none {
		return Limit{}, nil
	}
	m, err := parseAmount(v)
	if err != nil {
		return Limit{}, err
	}
	return Limit{Set: true, Amount: m}, nil
}

func number(low, high int) func(value) (int, error) {
	return func(v value) (int, error) {
		s, err := v.one()
		if err != nil {
			return 0, err
		}
		n, perr := strconv.Atoi(s)
		if perr != nil || n < low || n > high || strconv.Itoa(n) != s {
			return 0, complain("%q is not a whole number from %d to %d", s, low, high)
		}
		return n, nil
	}
}

func duration(low, high string) func(value) (time.Duration, error) {
	parse := func(s string) time.Duration {
		d, err := time.ParseDuration(s)
		if err != nil {
			panic("config: bound " + s + " of a duration: " + err.Error())
		}
		return d
	}
	least, most := parse(low), parse(high)
	return func(v value) (time.Duration, error) {
		s, err := v.one()
		if err != nil {
			return 0, err
		}
		d, perr := time.ParseDuration(s)
		if perr != nil {
			return 0, complain("%q is not a duration such as 90s, 10m or 24h", s)
		}
		if d < least || d > most {
			return 0, complain("%s is not between %s and %s", s, low, high)
		}
		return d, nil
	}
}

func parseBool(v value) (bool, error) {
	s, err := v.one()
	if err == nil && s != "true" && s != "false" {
		err = complain("%q is neither true nor false", s)
	}
	return s == "true", err
}

func parseAutoBool(v value) (*bool, error) {
	s, err := v.one()
	if err != nil || s == auto {
		return nil, err
	}
	on, err := parseBool(v)
	if err != nil {
		return nil, complain("%q is none of true, false, auto", s)
	}
	return &on, nil
}

// parsePairs reads a list of NAME=VALUE.
func parsePairs(v value) (map[string]string, error) {
	list, err := v.many()
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i, s := range list {
		name, val, found := strings.Cut(s, "=")
		if name = strings.TrimSpace(name); !found || name == "" {
			return nil, &complaint{item: i, msg: fmt.Sprintf("%q is not NAME=VALUE", s)}
		}
		if _, twice := out[name]; twice {
			return nil, &complaint{item: i, msg: fmt.Sprintf("%q is set twice", name)}
		}
		out[name] = strings.TrimSpace(val)
	}
	return out, nil
}

func parseRoot(v value) (string, error) {
	s, err := v.one()
	if err != nil || s == workspace {
		return "", err
	}
	if !filepath.IsAbs(s) {
		return "", complain("%q is neither an absolute path nor workspace", s)
	}
	return filepath.Clean(s), nil
}

func parsePaths(v value) ([]string, error) {
	return v.manyOf(filepath.IsAbs, "an absolute path")
}

func parseFile(v value) (string, error) {
	s, err := v.one()
	if err != nil || s == none {
		return "", err
	}
	if !filepath.IsAbs(s) {
		return "", complain("%q is neither an absolute path nor none", s)
	}
	return filepath.Clean(s), nil
}

func parsePrograms(v value) ([]string, error) {
	return v.manyOf(func(s string) bool {
		return filepath.IsAbs(s) || !strings.ContainsAny(s, "/\\ \t\n")
	}, "the name of a program or an absolute path; arguments do not belong here")
}

var hostRE = regexp.MustCompile(`^(\*\.)?[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

func parseHosts(v value) ([]string, error) {
	return v.manyOf(func(s string) bool {
		_, err := netip.ParseAddr(s)
		return err == nil || len(s) < 254 && hostRE.MatchString(s)
	}, "a host in lower case, such as example.com or *.example.com, without scheme, port and path")
}

func parseAutoPath(v value) (string, error) {
	s, err := v.one()
	if err != nil || s == auto {
		return "", err
	}
	if !filepath.IsAbs(s) {
		return "", complain("%q is neither an absolute path nor auto", s)
	}
	return filepath.Clean(s), nil
}

func parseNoneURL(v value) (string, error) {
	if s, err := v.one(); err != nil || s == none {
		return "", err
	}
	return parseBaseURL(v)
}

// parseCommand reads a program and its arguments.
func parseCommand(v value) ([]string, error) {
	list, err := v.many()
	if err == nil && len(list) > 0 && !filepath.IsAbs(list[0]) {
		err = complain("begins with %q, which is no absolute path of a program", list[0])
	}
	return list, err
}

func parseRoutes(v value) ([]string, error) {
	return v.manyOf(func(s string) bool {
		name, model, named := strings.Cut(s, "/")
		return name != "" && !strings.ContainsAny(s, " \t\n*") || named && name != "" && model == "*"
	}, "a route: HARNESS, HARNESS/MODEL or HARNESS/*")
}
