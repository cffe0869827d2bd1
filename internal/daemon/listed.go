package daemon

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	toolprocess "github.com/ombud-run/ombud/internal/tools/process"
)

// checkListedTools refuses an agent whose list names a tool that is not there: it
// would never do what was meant. A tool in quarantine is there; ombud tools says
// what is wrong with it.
func (d *Daemon) checkListedTools(cfg config.Config) error {
	there := func(match func(name string) bool) bool {
		for _, t := range d.tools.List() {
			if match(t.Name) {
				return true
			}
		}
		for _, q := range d.tools.Quarantined() {
			if match(q.Name) {
				return true
			}
		}
		return false
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(cfg.Agents)) {
		for _, want := range cfg.Agents[name].Tools {
			match := func(name string) bool { return name == want }
			if prefix, pattern := strings.CutSuffix(want, "*"); pattern {
				match = func(name string) bool { return strings.HasPrefix(name, prefix) }
			}
			if !there(match) && !d.mayRegister(want) {
				errs = append(errs, d.noTool("agents."+name+".tools", want))
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fault.New(fault.Config, "%w", errors.Join(errs...))
}

// mayRegister reports whether a listed tool is one of a tool process that has not said
// yet what it registers.
func (d *Daemon) mayRegister(want string) bool {
	return slices.ContainsFunc(d.processes.List(), func(i toolprocess.Info) bool {
		return len(i.Tools) == 0 && strings.HasPrefix(want, i.Spec.Name+".")
	})
}

func (d *Daemon) noTool(key, want string) error {
	where := ""
	if e, err := d.o.Config.Explain(key); err == nil {
		where = strings.TrimPrefix(e.Source, "file ") + ": "
	}
	_, err := d.tools.Get(strings.TrimSuffix(want, "*"))
	near := ""
	if hint := fault.HintOf(err); hint != "" {
		near = "; " + hint
	}
	return fault.New(fault.Config, "%s%s: no tool is called %q%s", where, key, want, near)
}
