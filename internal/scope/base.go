package scope

import (
	"sort"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// Kind says how the qualifier of a base is read.
type Kind uint8

// The kinds of qualifier.
const (
	KindNone   Kind = iota // the base takes no qualifier
	KindName               // a name in which `*` stands for any text
	KindPath               // an absolute path; `*` within a segment, `**` for any segments
	KindURL                // origin and path prefix; the host may start with `*.`
	KindHost               // host or `*.domain`, with an optional port
	KindSet                // names separated by commas
	KindAmount             // a number, at most
)

var kindNames = [...]string{"none", "name", "path", "url", "host", "set", "amount"}

func (k Kind) String() string { return kindNames[k] }

// Base is one row of the table of bases. The zero Base is no base. Numbers are
// valid within one process only: store the text.
type Base uint8

type baseInfo struct {
	name string
	kind Kind
	is   uint8
}

const (
	reads = 1 << iota // changes nothing outside
	final             // cannot be taken back
)

// table holds every base there is. Its first row stands for "no base".
var table = []baseInfo{
	{},
	{"fs.read", KindPath, reads}, {"fs.list", KindPath, reads}, {"fs.metadata", KindPath, reads},
	{"fs.write", KindPath, 0}, {"fs.delete", KindPath, final},
	{"net.fetch", KindURL, reads}, {"net.post", KindURL, final}, {"net.dns", KindHost, reads},
	{"http", KindHost, 0},
	{"shell.exec", KindSet, final}, {"shell.spawn", KindSet, final},
	{"git.read", KindPath, reads}, {"git.write", KindPath, final},
	{"llm.call", KindName, reads}, {"llm.embed", KindName, reads},
	{"memory", KindName, 0}, {"memory.read", KindName, reads}, {"memory.write", KindName, 0},
	{"memory.forget", KindName, 0}, {"memory.gc", KindName, 0},
	{"channel", KindName, 0}, {"channel.send", KindName, 0}, {"channel.receive", KindName, reads},
	{"notify.send", KindName, 0},
	{"email.read", KindName, reads}, {"email.write", KindName, 0}, {"email.send", KindSet, final},
	{"calendar.read", KindName, reads}, {"calendar.write", KindName, 0},
	{"contacts.read", KindName, reads}, {"contacts.write", KindName, 0},
	{"task.read", KindName, reads}, {"task.write", KindName, 0},
	{"drive.read", KindName, reads}, {"drive.write", KindName, 0},
	{"notion.read", KindName, reads}, {"notion.write", KindName, 0},
	{"obsidian.read", KindName, reads}, {"obsidian.write", KindName, 0},
	{"web.search", KindNone, reads},
	{"calc.eval", KindNone, reads}, {"convert.units", KindNone, reads}, {"date.compute", KindNone, reads},
	{"time.read", KindNone, reads}, {"remind.read", KindNone, reads}, {"remind.write", KindNone, 0},
	{"schedule.list", KindNone, reads}, {"schedule.create", KindName, 0},
	{"schedule.update", KindName, 0}, {"schedule.delete", KindName, 0},
	{"webhook.list", KindNone, reads}, {"webhook.create", KindName, 0}, {"webhook.delete", KindName, 0},
	{"file_watch.list", KindNone, reads}, {"file_watch.create", KindPath, 0}, {"file_watch.delete", KindPath, 0},
	{"skills.list", KindNone, reads}, {"skills.invoke", KindName, reads},
	{"skills.propose", KindName, 0}, {"skills.write", KindName, 0},
	{"mcp.call", KindName, 0}, {"mcp.ask", KindName, 0},
	{"tool", KindName, 0}, {"run", KindName, 0}, {"hub", KindName, 0},
	{"loop", KindName, 0}, {"harness", KindName, 0},
	{"spend", KindAmount, 0},
	{"secret", KindName, 0}, {"secret.write", KindName, final},
	{"budget.read", KindNone, reads}, {"audit.read", KindNone, reads}, {"config.read", KindName, reads},
	{"config.write", KindName, final}, {"caps.read", KindName, reads}, {"caps.write", KindName, final},
	{"role.switch", KindName, final}, {"role.update", KindName, final},
}

var byName = func() map[string]Base {
	m := make(map[string]Base, len(table))
	for i := range table[1:] {
		m[table[i+1].name] = Base(i + 1)
	}
	return m
}()

// NumBases is one more than the highest Base: the length of an array indexed by Base.
func NumBases() int { return len(table) }

// Bases returns every base, in the order of the table.
func Bases() []Base {
	out := make([]Base, 0, len(table)-1)
	for i := range table[1:] {
		out = append(out, Base(i+1))
	}
	return out
}

// BaseOf returns the base called name; the error names the nearest ones.
func BaseOf(name string) (Base, error) {
	if b, ok := byName[name]; ok {
		return b, nil
	}
	err := fault.New(fault.Invalid, "unknown scope base %q", clip(name))
	if near := nearest(name, 3); len(near) > 0 {
		return 0, err.WithHint("did you mean %s?", strings.Join(near, ", "))
	}
	return 0, err.WithHint("the bases are listed by `ombud caps list --bases`")
}

func (b Base) String() string { return table[b].name }

// Kind says how a qualifier of b is read.
func (b Base) Kind() Kind { return table[b].kind }

// ReadOnly reports whether a call that needs only b changes nothing outside.
func (b Base) ReadOnly() bool { return table[b].is&reads != 0 }

// Irreversible reports whether what b allows cannot be taken back.
func (b Base) Irreversible() bool { return table[b].is&final != 0 }

// Area is the first word of the base: the unit in which levels are set.
func (b Base) Area() string {
	area, _, _ := strings.Cut(table[b].name, ".")
	return area
}

// nearest returns up to max base names close enough to name to be what was meant.
func nearest(name string, max int) []string {
	const longest = 40 // no base is near a longer name
	if name == "" || len(name) > longest {
		return nil
	}
	type candidate struct {
		name string
		dist int
	}
	var found []candidate
	for _, row := range table[1:] {
		d := distance(strings.ToLower(name), row.name)
		if d <= 2 && d < len(row.name) || d <= len(row.name)/3 {
			found = append(found, candidate{row.name, d})
		}
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].dist < found[j].dist })
	out := make([]string, 0, max)
	for _, c := range found {
		if len(out) < max && c.dist <= found[0].dist+1 {
			out = append(out, c.name)
		}
	}
	return out
}

// distance is the number of single edits and swaps of neighbours between a and b.
func distance(a, b string) int {
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}

func clip(s string) string {
	const most = 60
	if len(s) > most {
		return fault.Cut(s, most) + "…"
	}
	return s
}
