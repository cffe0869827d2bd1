package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/signed"
	"github.com/ombud-run/ombud/internal/wire"
	"github.com/ombud-run/ombud/wasmloop"
)

func registryFlag(c *cobra.Command, url *string) {
	c.Flags().StringVar(url, "registry", "", "where the registry is (default $OMBUD_REGISTRY, else KARMAX's)")
}

// catalogue is a registry's index, and what is known of who made it.
type catalogue struct {
	client *wasmloop.Client
	index  *wasmloop.Index
	signer string // key, "" if nobody has signed it
	// warning is what a person is told before anything of it is believed, "" if a
	// registry that is trusted has signed it.
	warning string
}

// catalogue fetches the index of a registry. One that is trusted with its URL has to be
// signed by its key: whoever serves the file chooses otherwise what there is.
func (a *app) catalogue(ctx context.Context, url string) (c catalogue, err error) {
	c.client = wasmloop.NewClient()
	if url != "" {
		c.client.BaseURL = strings.TrimSuffix(url, "/")
	}
	trusted, err := a.client.TrustList(ctx)
	if err != nil {
		return c, err
	}
	if c.index, err = c.client.Index(ctx); err != nil {
		return c, registryFault(err)
	}
	if c.signer, err = c.index.Signer(); err != nil {
		return c, registryFault(err)
	}
	base := c.client.BaseURL
	known := ""
	for _, t := range trusted.Trust {
		if t.Kind == "revoked" && t.Key == c.signer && c.signer != "" {
			return c, fault.New(fault.Denied, "the index of %s is signed by a revoked key: %s", base, t.Key)
		}
		if t.Kind == "registry" && t.URL == base {
			known = t.Key
		}
	}
	switch {
	case known != "" && c.signer == "":
		return c, fault.New(fault.Verification, "the index of %s is not signed, and you trust it by the key %s", base, known).
			WithHint("somebody may have put another file in its place; ask whoever runs the registry")
	case known != "" && c.signer != known:
		return c, fault.New(fault.Verification, "the index of %s is signed by %s, and you trust it by the key %s", base, c.signer, known).
			WithHint("if the registry says that it has a new key: ombud loop trust add --registry KEY --url %s", base)
	case c.signer == "":
		c.warning = "the index of " + base + " is not signed: whoever serves it chooses what there is and which version. Each loop's own signatures are checked all the same."
	case !slices.ContainsFunc(trusted.Trust, func(t wire.Trust) bool { return t.Kind == "registry" && t.Key == c.signer }):
		c.warning = "the index of " + base + " is signed by " + c.signer + ", which you do not trust as a registry: ombud loop trust add --registry " + c.signer + " --url " + base
	}
	return c, nil
}

// registryFault gives an error of a fetch its class.
func registryFault(err error) error {
	switch {
	case errors.Is(err, wasmloop.ErrAltered):
		return fault.New(fault.Verification, "%w", err)
	case errors.Is(err, wasmloop.ErrMalformed):
		return fault.New(fault.Invalid, "%w", err)
	case errors.Is(err, wasmloop.ErrUntrusted):
		return fault.New(fault.Denied, "%w", err)
	case fault.ClassOf(err) == fault.Internal:
		return fault.New(fault.Unavailable, "%w", err).WithHint("--registry URL, or OMBUD_REGISTRY, names another")
	}
	return err
}

// fetchLoop fetches a loop by its name from a registry.
func (a *app) fetchLoop(ctx context.Context, name, url string) (f loopFile, err error) {
	c, err := a.catalogue(ctx, url)
	if err != nil {
		return f, err
	}
	e, there := c.index.Find(name)
	switch {
	case !there:
		return f, fault.New(fault.NotFound, "the registry %s has no %q, and there is no such file", c.client.BaseURL, oneLine(name)).WithHint("ombud loop search shows what it has")
	case e.Kind == wasmloop.KindRecipe:
		return f, fault.New(fault.Invalid, "%s is a recipe, and no loop", oneLine(name)).WithHint("read it, and put it into the directory of your recipes: ombud recipe list")
	}
	if c.warning != "" {
		a.note("note: %s", c.warning)
	}
	if f.data, err = c.client.Fetch(ctx, e); err != nil {
		return f, registryFault(err)
	}
	f.sum, f.from, f.requires = signed.Sum(f.data), c.client.BaseURL+" "+e.Name, e.Requires
	return f, nil
}

// found is what a search came to.
type found struct {
	Registry string                   `json:"registry"`
	Signer   string                   `json:"signer,omitempty"`
	Warning  string                   `json:"warning,omitempty"`
	Entries  []wasmloop.RegistryEntry `json:"entries"`
}

func (a *app) loopSearchCmd() *cobra.Command {
	var url string
	c := a.command(spec{
		use: "search [TEXT]", short: "loops that a registry offers",
		long: `TEXT is looked for in names, descriptions, authors and tags. A registry that you trust with
its URL has to have signed its whole index; of any other you are told who has, if anybody.`,
		example: "ombud loop search\nombud loop search mail\nombud loop search --registry https://loops.example",
		args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		cat, err := a.catalogue(ctx, url)
		if err != nil {
			return err
		}
		out := found{Registry: cat.client.BaseURL, Signer: cat.signer, Warning: cat.warning, Entries: []wasmloop.RegistryEntry{}}
		text := ""
		if len(args) > 0 {
			text = strings.ToLower(args[0])
		}
		for _, e := range cat.index.Entries {
			if strings.Contains(strings.ToLower(strings.Join(append([]string{e.Name, e.Description, e.Author}, e.Tags...), "\n")), text) {
				out.Entries = append(out.Entries, e)
			}
		}
		return a.show("loop-search/1", out, func(p *page) { foundPage(p, out) })
	})
	registryFlag(c, &url)
	return c
}

func foundPage(p *page, f found) {
	t := table{head: []string{"NAME", "KIND", "VERSION", "AUTHOR", "NEEDS", "DOES"}}
	for _, e := range f.Entries {
		kind := "loop"
		if e.Kind == wasmloop.KindRecipe {
			kind = "recipe"
		}
		t.add(e.Name, kind, e.Version, e.Author, short(strings.Join(e.Requires, ", "), 30), short(e.Description, 48))
	}
	if len(f.Entries) == 0 {
		p.line("the registry %s has nothing like that", f.Registry)
	} else {
		p.table(t)
	}
	if f.Warning != "" {
		p.line("%s", p.warn("note: "+p.clean(oneLine(f.Warning))))
	} else {
		p.line("%s", p.faint("signed as a whole by the registry, which you trust"))
	}
}
