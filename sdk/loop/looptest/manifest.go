package looptest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// manifest is what a loop.yaml declares, as far as a call can be held to it.
type manifest struct {
	name                                string
	host, tools, capabilities, provides []string
}

// readManifest reads the plain YAML that a loop.yaml is usually written in: lists in
// brackets on one line, or an item a line. It understands less than ombud does, and says
// so; what it accepts it reads as ombud does.
func readManifest(text string) (m manifest, err error) {
	r := &reader{seen: map[string]bool{}}
	if strings.ContainsAny(text, "\t\r\f\v\u0085\u2028\u2029\ufeff") {
		return m, fmt.Errorf("it has tabs or other odd spaces; this test host reads plain YAML only")
	}
	for n, line := range strings.Split(text, "\n") {
		if err := r.line(&m, line); err != nil {
			return m, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	if m.name == "" {
		return m, fmt.Errorf("it has no name")
	}
	if contains(m.provides, "") {
		return m, fmt.Errorf("an item of provides has no name")
	}
	return m, nil
}

type reader struct {
	seen  map[string]bool
	key   string    // the top-level key we are under
	list  *[]string // where its items go, nil if they do not matter
	open  bool      // items may come
	items int       // column of the dashes of provides, -1 before the first
}

var (
	topKey = regexp.MustCompile(`^([a-z][a-z0-9_]*):( .*)?$`)
	item   = regexp.MustCompile(`^ *- +(.*)$`)
	plain  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.*/@:-]*$`)
)

func (r *reader) line(m *manifest, line string) error {
	bare := strings.TrimSpace(line)
	if bare == "" || strings.HasPrefix(bare, "#") {
		return nil
	}
	if k := topKey.FindStringSubmatch(line); k != nil {
		return r.top(m, k[1], uncomment(k[2]))
	}
	if line[0] != ' ' && line[0] != '-' || strings.HasPrefix(line, "---") || r.key == "" {
		return fmt.Errorf("%q is not a key, an item or what belongs to one; this test host reads plain YAML only", bare)
	}
	switch {
	case r.key == "provides" && r.open:
		return r.provided(m, line)
	case r.list == nil && r.key != "name":
		return nil // of a key that does not matter here
	case !r.open:
		return fmt.Errorf("%s goes on over several lines: write it on one, or an item a line", r.key)
	}
	i := item.FindStringSubmatch(line)
	if i == nil {
		return fmt.Errorf("%q is not an item of %s: write \"- NAME\"", bare, r.key)
	}
	word, err := scalar(uncomment(i[1]))
	if err == nil {
		*r.list = append(*r.list, word)
	}
	return err
}

// top begins a key.
func (r *reader) top(m *manifest, key, value string) (err error) {
	if r.seen[key] {
		return fmt.Errorf("%s is there twice", key)
	}
	r.seen[key] = true
	r.key, r.list, r.open, r.items = key, nil, value == "", -1
	switch key {
	case "name":
		m.name, err = scalar(value)
		return err
	case "host":
		r.list = &m.host
	case "tools":
		r.list = &m.tools
	case "capabilities":
		r.list = &m.capabilities
	case "provides":
		if value != "" && value != "[]" {
			return fmt.Errorf("write provides as a block: \"- name: NAME\" and what belongs to it below")
		}
		return nil
	default:
		return nil
	}
	if value == "" {
		return nil
	}
	inside, ok := strings.CutPrefix(value, "[")
	if inside, ok2 := strings.CutSuffix(inside, "]"); ok && ok2 {
		for word := range strings.SplitSeq(inside, ",") {
			word, err := scalar(strings.TrimSpace(word))
			if err != nil && strings.TrimSpace(inside) != "" {
				return err
			}
			if word != "" {
				*r.list = append(*r.list, word)
			}
		}
		return nil
	}
	return fmt.Errorf("%s is not a list: write it as [a, b], or an item a line", key)
}

// provided looks for the names of tools: the key name of each item, and of nothing deeper.
func (r *reader) provided(m *manifest, line string) error {
	col := len(line) - len(strings.TrimLeft(line, " "))
	rest := line[col:]
	if dashed, ok := strings.CutPrefix(rest, "- "); ok && (r.items < 0 || col == r.items) {
		r.items = col
		inner := strings.TrimLeft(dashed, " ")
		if len(dashed) != len(inner) {
			return fmt.Errorf("write \"- name: NAME\" with one space behind the dash")
		}
		col, rest = col+2, inner
		m.provides = append(m.provides, "")
	}
	if r.items < 0 || col <= r.items {
		return fmt.Errorf("%q is not an item of provides: write \"- name: NAME\"", strings.TrimSpace(line))
	}
	if value, ok := strings.CutPrefix(rest, "name:"); ok && col == r.items+2 {
		word, err := scalar(strings.TrimSpace(uncomment(value)))
		if err != nil {
			return err
		}
		if m.provides[len(m.provides)-1] != "" {
			return fmt.Errorf("an item of provides has two names")
		}
		m.provides[len(m.provides)-1] = word
	}
	return nil
}

// uncomment takes off the comment behind a value, and the spaces around it.
func uncomment(s string) string {
	s, _, _ = strings.Cut(s, " #")
	return strings.TrimSpace(s)
}

// scalar reads a word, with or without quotes.
func scalar(s string) (string, error) {
	for _, q := range []string{`"`, `'`} {
		if inner, ok := strings.CutPrefix(s, q); ok {
			if inner, ok = strings.CutSuffix(inner, q); ok && plain.MatchString(inner) {
				return inner, nil
			}
		}
	}
	reserved := []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
	if !plain.MatchString(s) || strings.HasSuffix(s, ":") || slices.Contains(reserved, strings.ToLower(s)) {
		return "", fmt.Errorf("%q is not a plain word", s)
	}
	return s, nil
}
