package scope

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// In a compiled pattern anyText stands for `*` and anySegs, alone in a segment,
// for `**`. Both are control characters, which no scope text may hold.
const (
	anyText = '\x00'
	anySegs = "\x01"
)

// special are the characters that need a backslash to stand for themselves.
// Only `*` is a wildcard; the others are refused bare, because elsewhere they
// are wildcards too and a grant that means something else than it seems is worse
// than an error.
const special = `*?[]{}\`

// compileGlob turns the text of a pattern into its compiled form.
func compileGlob(text string, literal bool) (string, error) {
	if literal || !strings.ContainsAny(text, special) {
		return text, nil
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\':
			i++
			if i == len(text) || !strings.ContainsRune(special, rune(text[i])) {
				return "", errText(`a backslash is only used before one of ` + special)
			}
			out = append(out, text[i])
		case c == '*':
			if len(out) == 0 || out[len(out)-1] != anyText {
				out = append(out, anyText)
			}
		case strings.IndexByte(special, c) >= 0:
			return "", errText("only * is a wildcard; write \\" + string(c) + " for the character itself")
		default:
			out = append(out, c)
		}
	}
	return string(out), nil
}

// globText is the inverse of compileGlob.
func globText(glob string) string {
	if !strings.ContainsAny(glob, special+"\x00\x01") {
		return glob
	}
	var b strings.Builder
	for i := range len(glob) {
		switch c := glob[i]; {
		case c == anyText:
			b.WriteByte('*')
		case c == anySegs[0]:
			b.WriteString("**")
		case strings.IndexByte(special, c) >= 0:
			b.WriteByte('\\')
			b.WriteByte(c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// matchGlob reports whether need is within held. A wildcard of need is a
// character like any other, which only a wildcard of held can take in: that makes
// the relation reflexive, transitive and never too wide.
func matchGlob(held, need string) bool {
	if n := len(held); n > 0 && held[n-1] != anyText && (need == "" || held[n-1] != need[len(need)-1]) {
		return false // most patterns end in a plain character: the cheapest way to say no
	}
	i, j, star, mark := 0, 0, -1, 0
	for i < len(need) {
		switch {
		case j < len(held) && held[j] == anyText:
			star, mark = j, i
			j++
		case j < len(held) && held[j] == need[i]:
			i++
			j++
		case star >= 0:
			mark++
			i, j = mark, star+1
		default:
			return false
		}
	}
	for j < len(held) && held[j] == anyText {
		j++
	}
	return j == len(held)
}

// overlapGlob reports whether some text may match both. With wildcards on both
// sides only what is fixed before the first and behind the last is compared.
func overlapGlob(a, b string) bool {
	firstA, firstB := strings.IndexByte(a, anyText), strings.IndexByte(b, anyText)
	switch {
	case firstA < 0:
		return matchGlob(b, a)
	case firstB < 0:
		return matchGlob(a, b)
	}
	n := min(firstA, firstB)
	endA, endB := a[strings.LastIndexByte(a, anyText)+1:], b[strings.LastIndexByte(b, anyText)+1:]
	m := min(len(endA), len(endB))
	return a[:n] == b[:n] && endA[len(endA)-m:] == endB[len(endB)-m:]
}

// compilePath splits a cleaned absolute path into compiled segments. The first
// segment of a path with a drive letter is the drive.
func compilePath(text string, literal bool) ([]string, error) {
	segs := []string{}
	switch {
	case strings.HasPrefix(text, "/"):
	case len(text) > 2 && text[1] == ':' && text[2] == '/' && isLetter(text[0]):
		segs = append(segs, strings.ToUpper(text[:1])+":/")
		text = text[2:]
	default:
		return nil, errText("the path is not absolute")
	}
	drive := len(segs)
	for part := range strings.SplitSeq(text, "/") {
		seg, err := compileSegment(part, literal)
		switch {
		case err != nil:
			return nil, err
		case seg == "" || seg == ".":
		case seg == "..":
			if n := len(segs); n > drive {
				if wild(segs[n-1]) {
					return nil, errText(".. behind a wildcard has no meaning")
				}
				segs = segs[:n-1]
			}
		case seg == anySegs && len(segs) > 0 && segs[len(segs)-1] == anySegs:
		default:
			segs = append(segs, seg)
		}
	}
	return segs, nil
}

func compileSegment(part string, literal bool) (string, error) {
	if !literal && part == "**" {
		return anySegs, nil
	}
	for i := 0; !literal && i+1 < len(part); i++ {
		switch {
		case part[i] == '\\':
			i++
		case part[i] == '*' && part[i+1] == '*':
			return "", errText("** stands alone between two slashes")
		}
	}
	return compileGlob(part, literal)
}

func pathText(segs []string) string {
	if len(segs) > 0 && isDrive(segs[0]) {
		return segs[0] + joinSegs(segs[1:])
	}
	return "/" + joinSegs(segs)
}

func joinSegs(segs []string) string {
	parts := make([]string, len(segs))
	for i, s := range segs {
		parts[i] = globText(s)
	}
	return path.Join(parts...)
}

// isDrive reports whether s is the segment of a drive, the only one with a slash.
func isDrive(s string) bool { return strings.HasSuffix(s, "/") }

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func wild(seg string) bool { return seg == anySegs || strings.IndexByte(seg, anyText) >= 0 }

// matchPath is matchGlob one level up: `**` takes in any number of segments,
// none included, so `/a/**` covers `/a` itself.
func matchPath(held, need []string) bool {
	i, j, star, mark := 0, 0, -1, 0
	for i < len(need) {
		switch {
		case j < len(held) && held[j] == anySegs:
			star, mark = j, i
			j++
		case j < len(held) && need[i] != anySegs && matchGlob(held[j], need[i]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = mark, star+1
		default:
			return false
		}
	}
	for j < len(held) && held[j] == anySegs {
		j++
	}
	return j == len(held)
}

// overlapPath compares segment by segment up to the first `**` of either side,
// behind which anything is possible unless one side is free of wildcards.
func overlapPath(qa, qb *qualifier) bool {
	a, b := qa.path, qb.path
	switch {
	case !qa.wild:
		return matchPath(b, a)
	case !qb.wild:
		return matchPath(a, b)
	}
	for i := range max(len(a), len(b)) {
		switch {
		case i < len(a) && a[i] == anySegs, i < len(b) && b[i] == anySegs:
			return true
		case i >= len(a), i >= len(b):
			return false
		case !overlapGlob(a[i], b[i]):
			return false
		}
	}
	return true
}

// compileSet reads names separated by commas; blanks around them do not count.
func compileSet(text string) ([]string, error) {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			return nil, errText("a member of the set is empty")
		}
		out = append(out, part)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// subset reports whether every member of a is in b; both are sorted.
func subset(a, b []string) bool {
	j := 0
	for _, x := range a {
		for j < len(b) && b[j] < x {
			j++
		}
		if j == len(b) || b[j] != x {
			return false
		}
	}
	return true
}

// common reports whether a and b share a member; both are sorted.
func common(a, b []string) bool {
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			return true
		case a[i] < b[j]:
			i++
		default:
			j++
		}
	}
	return false
}

const million = 1_000_000

// compileAmount reads a decimal with up to six places as millionths.
func compileAmount(text string) (int64, error) {
	whole, frac, point := strings.Cut(text, ".")
	if !digits(whole) || point && !digits(frac) || len(whole) > 12 || len(frac) > 6 {
		return 0, errText("an amount is a number such as 5 or 0.25, below 10^12 with at most 6 places")
	}
	n, err := strconv.ParseInt(whole+frac+strings.Repeat("0", 6-len(frac)), 10, 64)
	return n, err
}

func digits(s string) bool {
	return s != "" && strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

func amountText(n int64) string {
	text := strconv.FormatInt(n/million, 10)
	if rest := n % million; rest != 0 {
		frac := strconv.FormatInt(million+rest, 10)[1:]
		text += "." + strings.TrimRight(frac, "0")
	}
	return text
}
