package cli

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/scaffold"
	"github.com/ombud-run/ombud/internal/wholefile"
	"github.com/ombud-run/ombud/wasmloop"
)

// loopAuthorCmds are the commands of those who write loops. None needs a daemon.
func (a *app) loopAuthorCmds() []*cobra.Command {
	return []*cobra.Command{a.loopNewCmd(), a.loopBuildCmd(), a.loopSignCmd(), a.loopKeygenCmd(), a.loopIndexCmd()}
}

// madeLoop is what ombud loop new made.
type madeLoop struct {
	Name string `json:"name"`
	Lang string `json:"lang"`
	Dir  string `json:"dir"`
}

func (a *app) loopNewCmd() *cobra.Command {
	var p scaffold.Project
	var dir string
	c := a.command(spec{
		use: "new NAME", short: "begin a loop of your own, as a project that builds offline",
		long: `The project is a directory NAME with a loop that runs, its tests and loop.yaml, which says
what it may do. The kit is in it: a loop in Go builds and is tested without a network.
With --from it begins as an example: ` + strings.Join(scaffold.Examples(), ", ") + `. One in
AssemblyScript fetches its compiler with npm. docs/signed-loops.md leads from here to
publishing. Nothing that is there is written over.`,
		example: "ombud loop new hello && cd hello && ombud loop build && ombud loop sign\nombud loop new frost --from weather-watch\nombud loop new tiny --lang assemblyscript",
		args:    cobra.ExactArgs(1),
	}, func(_ context.Context, args []string) error {
		p.Name = args[0]
		if dir == "" {
			dir = p.Name
		}
		if err := scaffold.Make(dir, p); err != nil {
			return err
		}
		return a.show("loop-new/1", madeLoop{p.Name, p.Lang, dir}, func(out *page) {
			out.line("made %s: a loop in %s, with loop.yaml, which says what it may do", dir, p.Lang)
			next := "cd " + dir + " && ombud loop build && ombud loop sign"
			if p.Lang == scaffold.AssemblyScript {
				next = "cd " + dir + " && npm ci && ombud loop build && ombud loop sign"
			}
			out.line("%s", out.faint(next))
		})
	})
	c.Flags().StringVar(&p.Lang, "lang", scaffold.Go, strings.Join(scaffold.Languages(), " or "))
	c.Flags().StringVar(&p.From, "from", "", "the example it begins as (default hello)")
	c.Flags().StringVar(&dir, "dir", "", "where it is made (default ./NAME)")
	return c
}

// keyed is what keygen says. The private half is in the file alone.
type keyed struct {
	Publisher string `json:"publisher"`
	File      string `json:"file"`
}

func (a *app) loopKeygenCmd() *cobra.Command {
	var from string
	c := a.command(spec{
		use: "keygen", short: "make the key that your loops are signed with",
		long: `The key is kept in the instance, for you alone to read, and never written over. Loops that
are signed with it can be installed on this machine with --yes; others trust it with
ombud loop trust add PUBLISHER. Keep a copy: a loop that is signed with another key is
another publisher's. --from takes over a publisher.json, KARMAX's too.`,
		example: "ombud loop keygen\nombud loop keygen --from ~/.karmax/loops/publisher.json",
	}, func(context.Context, []string) error {
		priv, err := a.newKey(from)
		if err != nil {
			return err
		}
		out := keyed{publicOf(priv), a.where.PublisherFile()}
		return a.show("loop-key/1", out, func(p *page) {
			p.field("publisher", out.Publisher)
			p.field("file", out.File)
			p.line("%s", p.faint("keep a copy of the file where nobody else can read it"))
		})
	})
	c.Flags().StringVar(&from, "from", "", "take the key of this publisher.json")
	return c
}

func publicOf(priv ed25519.PrivateKey) string {
	return wasmloop.EncodeKey(priv.Public().(ed25519.PublicKey)) //nolint:forcetypeassert // what it returns
}

// newKey makes the publisher's key of the instance, or takes one over.
func (a *app) newKey(from string) (ed25519.PrivateKey, error) {
	var priv ed25519.PrivateKey
	var err error
	if from == "" {
		_, priv, err = ed25519.GenerateKey(rand.Reader)
	} else {
		priv, err = readKey(from)
	}
	if err != nil {
		return nil, err
	}
	text, err := wasmloop.MarshalPublisher(priv)
	if err != nil {
		return nil, err
	}
	if err := a.where.MakeDirs(); err != nil {
		return nil, err
	}
	file := a.where.PublisherFile()
	switch err := wholefile.Create(file, text); {
	case errors.Is(err, fs.ErrExist):
		return nil, fault.New(fault.Conflict, "there is a key already: %s", file).
			WithHint("loops that were signed with it need it; move it away if you mean to have another")
	case err != nil:
		return nil, fault.New(fault.Unavailable, "write the key: %w", err)
	}
	return priv, nil
}

// readKey reads a publisher.json. Its error has NotFound if there is none.
func readKey(path string) (ed25519.PrivateKey, error) {
	const most = 64 << 10
	text, err := readPart(path, most)
	if err != nil {
		return nil, err
	}
	priv, err := wasmloop.ParsePublisher(text)
	if err != nil {
		return nil, fault.New(fault.Verification, "%s: %w", path, err).WithHint("put the copy you kept in its place")
	}
	return priv, nil
}

// readLoopYAML reads and checks the manifest of a project.
func readLoopYAML(path string) (m wasmloop.Manifest, err error) {
	const most = 256 << 10
	text, err := readPart(path, most)
	if fault.Is(err, fault.NotFound) {
		return m, fault.New(fault.NotFound, "%s is no project of a loop: there is no %s", filepath.Dir(path), filepath.Base(path)).
			WithHint("ombud loop new NAME makes one")
	}
	if err != nil {
		return m, err
	}
	if m, err = wasmloop.ParseManifest(text); err != nil {
		return m, fault.New(fault.Config, "%s: %w", path, err)
	}
	if problems := scaffold.Check(m); len(problems) > 0 {
		return m, fault.New(fault.Config, "%s:\n  %s", path, strings.Join(problems, "\n  ")).WithHint("docs/signed-loops.md has every key of loop.yaml")
	}
	return m, nil
}
