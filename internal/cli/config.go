package cli

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/wire"
)

// configResult is the answer of `config show` and `config explain`.
type configResult struct {
	File   string               `json:"file"`
	Values []config.Explanation `json:"values"`
	Daemon *daemonValue         `json:"daemon,omitempty"` // explain: what the running daemon has, if it is something else
}

type daemonValue struct {
	Value  string `json:"value"`
	Origin string `json:"origin"`
	Where  string `json:"where,omitempty"`
}

func (a *app) configCmd() *cobra.Command {
	return a.noun(spec{
		use:   "config",
		short: "what is set and where it comes from",
		long: `Works without a daemon. A daemon keeps the configuration it was started with: after a
change, ombud stop.`,
		example: "ombud config show\nombud config explain models.main\nmkdir -p \"$(dirname \"$(ombud config path)\")\" && ombud config sample > \"$(ombud config path)\"",
	}, a.configShowCmd(), a.configExplainCmd(), a.configSampleCmd(), a.configPathCmd())
}

func (a *app) configShowCmd() *cobra.Command {
	var changed bool
	c := a.command(spec{
		use:     "show",
		short:   "every key with its value and where that comes from",
		example: "ombud config show --changed",
	}, func(context.Context, []string) error {
		loaded, err := a.loadConfig()
		if err != nil {
			return err
		}
		res := configResult{File: a.where.ConfigFile(), Values: []config.Explanation{}}
		for _, key := range loaded.Keys() {
			e, err := loaded.Explain(key)
			if err != nil {
				return err
			}
			if !changed || e.Source != string(config.FromDefault) {
				res.Values = append(res.Values, e)
			}
		}
		return a.show("config/1", res, func(p *page) {
			if len(res.Values) == 0 {
				p.line("nothing is changed; every value is the default")
				return
			}
			t := table{head: []string{"KEY", "VALUE", "FROM"}}
			for _, e := range res.Values {
				t.add(e.Key, short(orDash(e.Value), 60), e.Source)
			}
			t.tint = func(_, col int, cell string) string {
				if col == len(t.head)-1 {
					return p.faint(cell)
				}
				return cell
			}
			p.table(t)
		})
	})
	c.Flags().BoolVar(&changed, "changed", false, "only what is not the default")
	return c
}

func (a *app) configExplainCmd() *cobra.Command {
	return a.command(spec{
		use:     "explain KEY",
		short:   "what a key means, its value, and where that comes from",
		example: "ombud config explain turn.timeout",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		loaded, err := a.loadConfig()
		if err != nil {
			return err
		}
		e, err := loaded.Explain(args[0])
		if err != nil {
			return err
		}
		res := configResult{File: a.where.ConfigFile(), Values: []config.Explanation{e}}
		res.Daemon = a.daemonHas(ctx, e)
		return a.show("config/1", res, func(p *page) {
			p.line("%s = %s", p.strong(e.Key), orDash(e.Value))
			p.line("%s", indent(e.Doc))
			p.field("  from", e.Source)
			p.field("  default", e.Default)
			p.field("  variable", e.Env)
			if d := res.Daemon; d != nil {
				p.line("%s", p.warn(fmt.Sprintf("the running daemon has %s (%s %s); ombud stop, and the next ask starts one with this", orDash(d.Value), d.Origin, d.Where)))
			}
		})
	})
}

// daemonHas returns what the running daemon has for a key if it differs.
func (a *app) daemonHas(ctx context.Context, e config.Explanation) *daemonValue {
	res, err := a.client.ConfigExplain(ctx, wire.ConfigExplainRequest{Key: e.Key})
	if err != nil {
		return nil // no daemon, or an older one: this is only a remark
	}
	for _, v := range res.Values {
		if v.Key == e.Key && v.Value != e.Value {
			return &daemonValue{Value: v.Value, Origin: v.Origin, Where: v.Where}
		}
	}
	return nil
}

func (a *app) configSampleCmd() *cobra.Command {
	return a.command(spec{
		use:     "sample",
		short:   "a configuration file with every key, all commented out",
		example: "ombud config sample",
	}, func(context.Context, []string) error {
		res := struct {
			Sample string `json:"sample"`
		}{config.Sample()}
		if a.json {
			return a.writeJSON("config-sample/1", res)
		}
		_, err := fmt.Fprint(a.stdout, res.Sample)
		return outputFault(err)
	})
}

// pathsResult is the answer of `config path`.
type pathsResult struct {
	Config    string `json:"config"`
	Exists    bool   `json:"exists"` // the configuration file is there
	State     string `json:"state"`
	Store     string `json:"store"`
	Key       string `json:"key"`
	Log       string `json:"log"`
	Socket    string `json:"socket"`
	Workspace string `json:"workspace"`
	Cache     string `json:"cache"`
}

func pathsOf(in instance.Instance) pathsResult {
	_, err := os.Stat(in.ConfigFile())
	return pathsResult{
		Config: in.ConfigFile(), Exists: err == nil, State: in.StateDir, Store: in.StateDB(), Key: in.KeyFile(),
		Log: in.LogFile(), Socket: in.Socket(), Workspace: in.Workspace(), Cache: in.CacheDir,
	}
}

func (a *app) configPathCmd() *cobra.Command {
	var all bool
	c := a.command(spec{
		use:     "path",
		short:   "where the configuration file is, or would be",
		example: "$EDITOR \"$(ombud config path)\"\nombud config path --all",
	}, func(context.Context, []string) error {
		res := pathsOf(a.where)
		return a.show("paths/1", res, func(p *page) {
			if !all {
				p.line("%s", res.Config)
				return
			}
			p.field("config", res.Config)
			p.field("state", res.State)
			p.field("store", res.Store)
			p.field("key", res.Key)
			p.field("log", res.Log)
			p.field("socket", res.Socket)
			p.field("workspace", res.Workspace)
			p.field("cache", res.Cache)
		})
	})
	c.Flags().BoolVar(&all, "all", false, "every path of this instance")
	return c
}

func (a *app) versionCmd() *cobra.Command {
	return a.command(spec{
		use:     "version",
		short:   "which program this is",
		example: "ombud version --json",
	}, func(context.Context, []string) error {
		b := thisBuild()
		return a.show("version/1", b, func(p *page) {
			p.line("ombud %s %s %s", b.Version, b.Go, b.System)
			if b.Commit != "" {
				dirty := ""
				if b.Dirty {
					dirty = " (changed)"
				}
				p.line("%s", p.faint("commit "+b.Commit+dirty))
			}
		})
	})
}
