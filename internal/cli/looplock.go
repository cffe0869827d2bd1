package cli

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
	"github.com/ombud-run/ombud/wasmloop"
)

func (a *app) loopExportCmd() *cobra.Command {
	var output string
	c := a.command(spec{
		use: "export", short: "write what is installed as a loops.lock",
		long: `The file says which loops are installed, each with its digest, its keys and what it may do,
in the shape that KARMAX reads. Tracked in a repository it shows what changed. The
artifacts are not in it: they are in the store, and in its backups.`,
		example: "ombud loop export -o loops.lock",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.LoopList(ctx, wire.LoopListRequest{})
		if err != nil {
			return err
		}
		lock := wasmloop.Lock{Version: 1, Entries: []wasmloop.Entry{}}
		for _, l := range res.Loops {
			if l.Signed != nil {
				lock.Entries = append(lock.Entries, lockEntry(l))
			}
		}
		return a.export(output, lock)
	})
	c.Flags().StringVarP(&output, "output", "o", "", "the file to write (default standard output)")
	return c
}

// lockEntry is an installed loop as a lockfile has it.
func lockEntry(l wire.Loop) wasmloop.Entry {
	s, m := l.Signed, l.Signed.Manifest
	ext := ".oloop"
	if s.Vouching.Format == 1 {
		ext = ".kloop"
	}
	e := wasmloop.Entry{
		Name: l.Name, Version: m.Version, SHA256: m.Module, Publisher: s.Vouching.Publisher, Registry: s.Vouching.Registry,
		Tier: wasmloop.Tier(s.Vouching.Tier), Host: m.Host, Capabilities: m.Capabilities, Source: m.Source, File: l.Name + ext,
		InstalledBy: s.InstalledBy, InstalledAt: time.UnixMicro(s.InstalledAt).UTC().Truncate(time.Second),
		Enabled: l.State != "disabled" && l.State != "off", FileSHA256: s.SHA256, Tools: m.Tools,
	}
	for _, p := range m.Provides {
		e.Provides = append(e.Provides, p.Name)
	}
	return e
}

func (a *app) loopImportCmd() *cobra.Command {
	var i installing
	c := a.command(spec{
		use: "import DIR", short: "install what the loops.lock of a directory names, KARMAX's too",
		long: `Each loop of the lockfile is installed from the file beside it, as ombud loop install does,
with all its questions: that it was approved elsewhere approves nothing here. A file that
is not what the lockfile pins is refused. One that was disabled there is disabled here.`,
		example: "ombud loop import ~/.karmax/loops", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		lock, err := wasmloop.LoadLock(args[0])
		if err != nil {
			return fault.New(fault.Invalid, "%w", err)
		}
		if len(lock.Entries) == 0 {
			return fault.New(fault.NotFound, "%s names no loop", wasmloop.LockPath(args[0]))
		}
		var done wire.LoopListResult
		for _, e := range lock.Entries {
			res, say, err := a.importLoop(ctx, args[0], e, i)
			if err == nil && !a.json {
				err = a.show("loop/1", res, say)
			}
			if err != nil { // those before it are installed
				return errors.Join(a.imported(done), fault.New(fault.ClassOf(err), "%s: %w", e.Name, err).WithHint("%s", fault.HintOf(err)))
			}
			done.Loops = append(done.Loops, res.Loop)
		}
		return a.imported(done)
	})
	c.Flags().BoolVar(&i.yes, "yes", false, "do not ask; enough alone only for loops that somebody you trust vouches for")
	c.Flags().BoolVar(&i.unsigned, "accept-unsigned", false, "confirm every line that no signature covers")
	return c
}

// imported shows what was installed, as JSON in one: for people each was shown when it was.
func (a *app) imported(done wire.LoopListResult) error {
	if !a.json || len(done.Loops) == 0 {
		return nil
	}
	return a.show("loops/1", done, nil)
}

func (a *app) importLoop(ctx context.Context, dir string, e wasmloop.Entry, i installing) (res wire.LoopResult, say func(*page), err error) {
	if filepath.Base(e.File) != e.File || strings.HasPrefix(e.File, ".") {
		return res, nil, fault.New(fault.Invalid, "the lockfile names the file %q", e.File)
	}
	f, err := readLoopFile(filepath.Join(dir, e.File))
	if err != nil {
		return res, nil, err
	}
	pinned := fault.New(fault.Verification, "%s is not the file that the lockfile pins", e.File)
	if e.FileSHA256 != "" && e.FileSHA256 != f.sum {
		return res, nil, pinned
	}
	art, err := wasmloop.Unpack(f.data)
	if err != nil {
		return res, nil, fault.New(fault.Invalid, "%w", err)
	}
	switch {
	case art.Manifest.Name != e.Name:
		return res, nil, fault.New(fault.Verification, "%s holds the loop %s", e.File, art.Manifest.Name)
	case art.Digest() != strings.ToLower(e.SHA256): // all that a lockfile of KARMAX pins
		return res, nil, pinned
	}
	i.disabled = !e.Enabled
	return a.installing(ctx, f, i)
}
