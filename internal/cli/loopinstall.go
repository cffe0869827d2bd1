package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/signed"
	"github.com/ombud-run/ombud/internal/wire"
)

// loopOperatorCmds are the commands of those who install loops of others.
func (a *app) loopOperatorCmds() []*cobra.Command {
	return []*cobra.Command{
		a.loopInspectCmd(), a.loopInstallCmd(), a.loopUpgradeCmd(), a.loopRemoveCmd(), a.loopSetCmd(), a.loopVerifyCmd(),
		a.loopTrustCmd(), a.loopSearchCmd(), a.loopExportCmd(), a.loopImportCmd(),
	}
}

// loopFile is an artifact in hand.
type loopFile struct {
	data []byte
	sum  string
	from string // where it came from, for people
	// requires are tools that a registry says it needs.
	requires []string
}

// isLoopFile reports whether a person means a file and not a name in a registry.
func isLoopFile(arg string) bool {
	if strings.ContainsRune(arg, filepath.Separator) || strings.HasSuffix(arg, ".oloop") || strings.HasSuffix(arg, ".kloop") {
		return true
	}
	info, err := os.Stat(arg)
	return err == nil && info.Mode().IsRegular()
}

func readLoopFile(path string) (f loopFile, err error) {
	f.data, err = readPart(path, signed.MaxArtifact)
	switch {
	case fault.Is(err, fault.NotFound):
		return f, fault.New(fault.NotFound, "%w", err).WithHint("a loop of a registry has a name without / and .oloop; ombud loop search shows them")
	case fault.Is(err, fault.Usage):
		return f, fault.New(fault.Usage, "%w", err).WithHint("a loop to install is a file: ombud loop sign makes it")
	case err != nil:
		return f, err
	}
	f.from = path
	if abs, err := filepath.Abs(path); err == nil {
		f.from = abs
	}
	f.sum = signed.Sum(f.data)
	return f, nil
}

// preview hands an artifact over and asks what installing it would mean.
func (a *app) preview(ctx context.Context, f loopFile) (p wire.LoopPreview, err error) {
	if len(f.data) == 0 {
		return p, fault.New(fault.Invalid, "%s is empty", f.from)
	}
	if _, err := a.ensure(ctx); err != nil {
		return p, err
	}
	for at := 0; at < len(f.data); {
		got, err := a.client.LoopUpload(ctx, wire.LoopUploadRequest{
			SHA256: f.sum, Size: len(f.data), Offset: at, Data: f.data[at:min(at+signed.MaxPiece, len(f.data))],
		})
		if err != nil {
			return p, err
		}
		if got.Have <= at {
			return p, fault.New(fault.Internal, "the daemon took nothing of %s", f.from)
		}
		at = got.Have
	}
	if p, err = a.client.LoopInspect(ctx, wire.LoopInspectRequest{SHA256: f.sum}); err != nil || len(f.requires) == 0 {
		return p, err
	}
	return p, a.required(ctx, f.requires, &p)
}

// required adds the tools that a registry says a loop needs and ombud does not have.
func (a *app) required(ctx context.Context, names []string, p *wire.LoopPreview) error {
	tools, err := a.client.ToolsList(ctx)
	if err != nil {
		return err
	}
	have := map[string]bool{}
	for _, t := range tools.Tools {
		have[t.Name] = t.Quarantined == ""
	}
	for _, m := range p.Missing {
		have[m] = true // it is said already
	}
	for _, name := range names {
		if !have[name] {
			p.Missing = append(p.Missing, name)
		}
	}
	return nil
}

func (a *app) loopInspectCmd() *cobra.Command {
	var registry string
	c := a.command(spec{
		use: "inspect FILE|NAME", short: "what a loop of others may do, who signed it, and what it could do at worst",
		long: `Verifies the file and shows what installing it would mean. Nothing is changed and nothing of
it runs. NAME is fetched from the registry.`,
		example: "ombud loop inspect hello-0.1.0.oloop\nombud loop inspect daily-post\nombud loop inspect hello.oloop --json",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		f, err := a.loopArg(ctx, args[0], registry)
		if err != nil {
			return err
		}
		p, err := a.preview(ctx, f)
		if err != nil {
			return err
		}
		return a.show("loop-preview/1", p, func(out *page) { previewPage(out, p, f.from) })
	})
	registryFlag(c, &registry)
	return c
}

// loopArg is the artifact that a person means: a file, or a name in a registry.
func (a *app) loopArg(ctx context.Context, arg, registry string) (loopFile, error) {
	if isLoopFile(arg) {
		if registry != "" {
			return loopFile{}, fault.New(fault.Usage, "%s is a file, so no registry has it", arg)
		}
		return readLoopFile(arg)
	}
	return a.fetchLoop(ctx, arg, registry)
}

const installLong = `Shows what the loop may do, what it could do at worst and who signed it, and asks. It takes
effect at once, with no restart, wholly or not at all.

Whom you trust decides what is asked. A loop that a registry you trust has reviewed, or
whose publisher you trust, needs a yes; --yes says it beforehand. Any other needs its name
typed, each time, also with --yes: at the terminal, or with --name. What no signature
covers (KARMAX's .kloop: tools, provided tools, description) is confirmed line by line, or
with --accept-unsigned. An older version than the installed one needs --downgrade.`

func (a *app) loopInstallCmd() *cobra.Command {
	var i installing
	c := a.command(spec{
		use: "install FILE|NAME", short: "install a loop of others, after you have seen what it may do", long: installLong,
		example: "ombud loop install hello-0.1.0.oloop\nombud loop install hello-0.1.0.oloop --yes\nombud loop install stranger.oloop --yes --name stranger\nombud loop install daily-post",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		f, err := a.loopArg(ctx, args[0], i.registry)
		if err != nil {
			return err
		}
		return a.install(ctx, f, i)
	})
	i.flags(c)
	return c
}

func (a *app) loopUpgradeCmd() *cobra.Command {
	var i installing
	c := a.command(spec{
		use: "upgrade NAME|FILE", short: "replace an installed loop, after you have seen what changes",
		long: `Shows how what the loop may do changes, and asks as ombud loop install does. NAME is fetched
from the registry. Runs that are under way go on with the version they began with, and may
do no more than the new one. What you have set of the loop stays.`,
		example: "ombud loop upgrade daily-post\nombud loop upgrade hello-0.2.0.oloop --yes",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		i.upgrade = true
		f, err := a.loopArg(ctx, args[0], i.registry)
		if err != nil {
			return err
		}
		return a.install(ctx, f, i)
	})
	i.flags(c)
	return c
}

// installing is what a person said of an install beforehand.
type installing struct {
	yes, unsigned, downgrade, upgrade, disabled bool
	name, registry                              string
}

func (i *installing) flags(c *cobra.Command) {
	c.Flags().BoolVar(&i.yes, "yes", false, "do not ask; enough alone only for a loop that somebody you trust vouches for")
	c.Flags().StringVar(&i.name, "name", "", "the loop's name, typed, for one that nobody you trust vouches for")
	c.Flags().BoolVar(&i.unsigned, "accept-unsigned", false, "confirm every line that no signature covers")
	c.Flags().BoolVar(&i.downgrade, "downgrade", false, "an older version than the installed one is meant")
	registryFlag(c, &i.registry)
}

func (a *app) install(ctx context.Context, f loopFile, i installing) error {
	res, say, err := a.installing(ctx, f, i)
	if err != nil {
		return err
	}
	return a.show("loop/1", res, say)
}

// installing installs a loop with all the questions of it, and returns what to show then.
func (a *app) installing(ctx context.Context, f loopFile, i installing) (res wire.LoopResult, say func(*page), err error) {
	p, err := a.preview(ctx, f)
	if err != nil {
		return res, nil, err
	}
	if p.Same {
		if i.disabled {
			if _, err := a.client.LoopDisable(ctx, wire.LoopRequest{Name: p.Manifest.Name}); err != nil {
				return res, nil, err
			}
		}
		list, err := a.client.LoopList(ctx, wire.LoopListRequest{Name: p.Manifest.Name})
		if err != nil {
			return res, nil, err
		}
		return wire.LoopResult{Loop: list.Loops[0]}, func(out *page) {
			out.line("%s %s is installed already: this very file", p.Manifest.Name, p.Manifest.Version)
		}, nil
	}
	if i.upgrade && p.Replaces == "" {
		return res, nil, fault.New(fault.NotFound, "no loop %q is installed", p.Manifest.Name).WithHint("ombud loop install %s", f.from)
	}
	req, err := a.confirmInstall(p, f, i)
	if err != nil {
		return res, nil, err
	}
	if res, err = a.client.LoopInstall(ctx, req); err != nil {
		return res, nil, err
	}
	return res, func(out *page) { installedPage(out, p, res.Loop) }, nil
}
