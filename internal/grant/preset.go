package grant

import (
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scope"
)

// Preset is an access level: rows that say how far into the machine a subject may
// reach. It only takes away; a role that gives less goes on giving less.
type Preset struct {
	Name string
	rows []row
}

// presetNames, from the narrowest to the widest.
var presetNames = []string{"sandbox", "workspace", "home", "full"}

// Presets are the names of the access levels, the narrowest first.
func Presets() []string { return append([]string{}, presetNames...) }

// NewPreset returns an access level. sandbox: paths in the workspace only, and no
// program is run. workspace: paths in the workspace only. home: paths in the home
// directory only. full: every path. Errors: Invalid for another name or where
// home is not known.
func NewPreset(name, workspace, home string) (Preset, error) {
	p := Preset{Name: name}
	var dir string
	switch name {
	case "sandbox", "workspace":
		dir = workspace
	case "home":
		dir = home
	case "full":
		p.limit("")
		return p, nil
	default:
		return p, fault.New(fault.Invalid, "no access level %q", clip(name)).WithHint("it is one of %s", strings.Join(presetNames, ", "))
	}
	place, err := scope.Of("fs.read", dir)
	if err != nil {
		return p, fault.New(fault.Invalid, "access level %s: the directory is not known: %w", name, err)
	}
	_, text, _ := strings.Cut(place.String(), ":")
	p.limit(":" + strings.TrimSuffix(text, "/") + "/**")
	if name == "sandbox" {
		for _, base := range []string{"shell.exec", "shell.spawn", "harness"} {
			p.rows = append(p.rows, row{scope.Must(base), Deny})
		}
	}
	return p, nil
}

// limit holds every base whose qualifier is a path to what qualifier names.
func (p *Preset) limit(qualifier string) {
	for _, b := range scope.Bases() {
		if b.Kind() != scope.KindPath {
			continue
		}
		if s, err := scope.Parse(b.String() + qualifier); err == nil {
			p.rows = append(p.rows, row{s, Limit})
		}
	}
}
