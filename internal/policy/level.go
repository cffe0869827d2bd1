package policy

import (
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
)

// Level says how much is done without asking. It can only ask more than the
// layers do, never less. The zero Level is Manual.
type Level uint8

// The levels, most careful first.
const (
	Manual     Level = iota // asks before everything but reading
	Assisted                // asks before what cannot be taken back
	Supervised              // as Assisted; with nobody there the call is parked for review
	Autonomous              // as Assisted; with nobody there what cannot be taken back is refused
)

var levelNames = []string{"manual", "assisted", "supervised", "autonomous"}

// levelDocs says what each does, in one sentence each.
var levelDocs = []string{
	"asks before everything but reading",
	"asks before what cannot be taken back, and where the role asks",
	"as assisted; work that nobody waits for goes on, and what it has to ask is kept for review",
	"as assisted; what cannot be taken back is refused while nobody is there to ask",
}

// Levels are all levels, the most careful first.
func Levels() []Level { return []Level{Manual, Assisted, Supervised, Autonomous} }

// Doc says what the level does.
func (l Level) Doc() string { return levelDocs[l] }

func (l Level) String() string { return levelNames[l] }

// MarshalText writes the name of the level.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads the name of a level.
func (l *Level) UnmarshalText(text []byte) error {
	i, err := indexOf("level", levelNames, string(text))
	if err == nil {
		*l = Level(i)
	}
	return err
}

// asks reports whether the level wants to be asked.
func (l Level) asks(b scope.Base, irreversible bool) bool {
	return irreversible || l == Manual && !b.ReadOnly()
}

// Autonomy is the level of each area of work. A nil Autonomy is Manual everywhere.
type Autonomy struct{ levels []Level }

// NewAutonomy returns level everywhere but in the areas named in overrides. An
// area is the first word of a base: fs, net, memory.
func NewAutonomy(level Level, overrides map[string]Level) (*Autonomy, error) {
	a := &Autonomy{levels: make([]Level, scope.NumBases())}
	areas := make([]string, 0, len(a.levels))
	for _, b := range scope.Bases() {
		a.levels[b] = level
		if l, ok := overrides[b.Area()]; ok {
			a.levels[b] = l
		}
		areas = append(areas, b.Area())
	}
	for area := range overrides {
		if !slices.Contains(areas, area) {
			slices.Sort(areas)
			return nil, fault.New(fault.Config, "level override for unknown area %q", area).
				WithHint("the areas are %s", strings.Join(slices.Compact(areas), ", "))
		}
	}
	return a, nil
}

// Of returns the level in the area of b.
func (a *Autonomy) Of(b scope.Base) Level {
	if a == nil {
		return Manual
	}
	return a.levels[b]
}
