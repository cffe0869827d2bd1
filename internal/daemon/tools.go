package daemon

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/ombud-run/ombud/internal/agent"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/memory"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/tools/clock"
	"github.com/ombud-run/ombud/internal/tools/fs"
	"github.com/ombud-run/ombud/internal/tools/shell"
	"github.com/ombud-run/ombud/internal/tools/web"
)

// registrar is a package of tools.
type registrar interface{ Register(*tool.Registry) error }

func (d *Daemon) workspace(cfg config.Config) string {
	if cfg.Tools.FS.Root != "" {
		return cfg.Tools.FS.Root
	}
	return d.o.Instance.Workspace()
}

// addTools puts every tool into the registry. One that is quarantined keeps no
// other from being there; it is shown by ombud tools.
func (d *Daemon) addTools(cfg config.Config) error {
	place := d.workspace(cfg)
	if err := os.MkdirAll(place, 0o700); err != nil {
		return fault.New(fault.Permission, "make the workspace: %w", err)
	}
	place, err := filepath.EvalSymlinks(place)
	if err != nil {
		return fault.New(fault.Permission, "the workspace: %w", err)
	}
	own := guard.NewSensitive(cfg.Tools.FS.AllowSensitive, append(vaultSecrets(d.o), d.o.Instance.ConfigDir, d.o.Instance.StateDir, d.o.Instance.RuntimeDir))
	root, err := guard.OpenRoot(place, own)
	if err != nil {
		return err
	}
	sh, err := shell.New(shell.Config{
		Allow: cfg.Tools.Shell.Allow, Dir: place, Network: network(cfg.Tools.Shell.Network), Read: cfg.Tools.Shell.Read,
	}, own, d.confined.launcher)
	if err != nil {
		return err
	}
	if missing := sh.Missing(); len(missing) > 0 {
		d.log.Info("programs of tools.shell.allow are not on this machine", "programs", missing)
	}
	egress, err := guard.NewEgress(guard.EgressConfig{OnlyHosts: cfg.Tools.Web.AllowHosts, AllowPrivate: cfg.Tools.Web.AllowPrivate})
	if err != nil {
		return err
	}
	client := guard.HTTPClient(guard.HTTPConfig{Egress: egress})
	all := append([]registrar{
		fs.New(root, label.Untrusted("file"), fs.NewKept(d.db, d.vault)),
		sh,
		web.New(client, "ombud/"+d.o.Version, d.secrets),
		clock.New(time.Now, time.Local),
	}, d.ownTools()...)
	all = append(all, d.extraTools()...)
	for _, r := range all {
		if err := r.Register(d.tools); err != nil && !fault.Is(err, fault.Config) {
			return err
		}
	}
	return nil
}

// recall lets agents ask the memory for what fits a message.
type recall struct{ memory *memory.Memory }

func (r recall) RecallFor(ctx context.Context, agentName, text string, limit int) ([]agent.Fact, string, error) {
	found, err := r.memory.Recall(ctx, agentName, text, limit)
	index := ""
	if found.Warming {
		index = "warming"
	}
	facts := make([]agent.Fact, 0, len(found.Hits))
	for _, h := range found.Hits {
		facts = append(facts, agent.Fact{Text: h.Text, Label: h.Label})
	}
	return facts, index, err
}

// kept is asked when a call is made, long after the parts are constructed.
func (d *Daemon) kept(ctx context.Context, conversation, handle string) (label.Label, error) {
	return d.act.Kept(ctx, conversation, handle)
}
