package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) loopTrustCmd() *cobra.Command {
	list := a.command(spec{
		use: "list", short: "whose signature counts", example: "ombud loop trust list",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.TrustList(ctx)
		if err != nil {
			return err
		}
		return a.show("loop-trust/1", res, func(p *page) { trustPage(p, res) })
	})
	return byDefault(a.noun(spec{
		use: "trust", short: "whose signature counts when a loop is installed",
		long: `A registry's countersignature says that somebody has reviewed a loop. A trusted publisher's
loops are installed with --yes. A revoked key stops all that it signed, at once, whatever
else is said of it. The key of this machine (ombud loop keygen) is trusted by itself.
Trust decides what an install asks; it gives no loop more than its manifest names.`,
		example: "ombud loop trust\nombud loop trust add KEY --note \"my colleague\"\nombud loop trust add --registry KEY --url https://loops.example\nombud loop trust revoke KEY",
	}, list, a.trustAddCmd(), a.trustRevokeCmd(), a.trustRemoveCmd(), a.trustCommunityCmd(), a.trustImportCmd(), a.trustExportCmd()), list)
}

func trustPage(p *page, res wire.TrustListResult) {
	t := table{head: []string{"KIND", "KEY", "SINCE", "NOTE"}}
	community := false
	for _, x := range res.Trust {
		if x.Kind == "community" {
			community = true
			continue
		}
		note := x.Note
		if x.URL != "" {
			note = strings.TrimSpace(x.URL + " " + note)
		}
		t.add(x.Kind, x.Key, p.clock(x.At), note)
	}
	if res.Own != "" {
		t.add("this machine", res.Own, "-", "ombud loop keygen")
	}
	p.table(t)
	if community {
		p.line("%s", p.warn("loops of any publisher are let in with a yes: ombud loop trust community off"))
	} else {
		p.line("a loop of any other publisher needs its name typed")
	}
}

// changeTrust carries a change out and says what it stopped.
func (a *app) changeTrust(ctx context.Context, req wire.TrustChangeRequest, done string) error {
	res, err := a.client.TrustChange(ctx, req)
	if err != nil {
		return err
	}
	return a.show("loop-trust-change/1", res, func(p *page) {
		p.line("%s", done)
		for _, name := range res.Stopped {
			p.line("%s", p.bad("stopped "+p.clean(name)+": it is signed by a revoked key"))
		}
		for _, name := range res.Freed {
			p.line("%s runs again", name)
		}
	})
}

func (a *app) trustAddCmd() *cobra.Command {
	t := wire.Trust{Kind: "publisher"}
	var registry bool
	c := a.command(spec{
		use: "add KEY", short: "let a publisher's loops, or those that a registry reviewed, be installed with a yes",
		long: `KEY is as ombud loop inspect shows it. Have it from its owner by another way than the file
that it signs. With --url the index of that registry has to be signed by the key.`,
		example: "ombud loop trust add KEY --note \"my colleague\"\nombud loop trust add --registry KEY --url https://loops.example",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		t.Key = args[0]
		if registry {
			t.Kind = "registry"
		}
		t.URL = strings.TrimSuffix(t.URL, "/")
		return a.changeTrust(ctx, wire.TrustChangeRequest{Add: []wire.Trust{t}}, "trusted: "+t.Kind+" "+t.Key)
	})
	c.Flags().BoolVar(&registry, "registry", false, "the key is a registry's, that countersigns what it has reviewed")
	c.Flags().StringVar(&t.URL, "url", "", "where the registry is")
	c.Flags().StringVar(&t.Note, "note", "", "whose it is, for you")
	return c
}

func (a *app) trustRevokeCmd() *cobra.Command {
	var note string
	c := a.command(spec{
		use: "revoke KEY", short: "stop all that a key has signed, at once",
		example: "ombud loop trust revoke KEY --note \"its laptop was stolen\"", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		return a.changeTrust(ctx, wire.TrustChangeRequest{Add: []wire.Trust{{Kind: "revoked", Key: args[0], Note: note}}}, "revoked: "+args[0])
	})
	c.Flags().StringVar(&note, "note", "", "why, for you")
	return c
}

func (a *app) trustRemoveCmd() *cobra.Command {
	return a.command(spec{
		use: "remove KEY", short: "forget a key: trusted it is no more, and revoked neither",
		long: `Loops that are installed stay. To stop them revoke the key. A revoked key that is removed
lets what it signed run again.`,
		example: "ombud loop trust remove KEY", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.TrustList(ctx)
		if err != nil {
			return err
		}
		var req wire.TrustChangeRequest
		for _, t := range res.Trust {
			if t.Key == args[0] && t.Kind != "community" {
				req.Remove = append(req.Remove, wire.Trust{Kind: t.Kind, Key: t.Key})
			}
		}
		if len(req.Remove) == 0 {
			return fault.New(fault.NotFound, "the key %s is not there", oneLine(args[0])).WithHint("ombud loop trust list")
		}
		return a.changeTrust(ctx, req, "removed: "+args[0])
	})
}

func (a *app) trustCommunityCmd() *cobra.Command {
	return a.command(spec{
		use: "community on|off", short: "whether a loop of any publisher is let in with a yes",
		long: `Off is how it begins: a loop whose publisher you do not trust needs its name typed. On, any
signature is enough, of whomever.`,
		example: "ombud loop trust community off", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		row := []wire.Trust{{Kind: "community"}}
		switch args[0] {
		case "on":
			return a.changeTrust(ctx, wire.TrustChangeRequest{Add: row}, "loops of any publisher are let in with a yes")
		case "off":
			err := a.changeTrust(ctx, wire.TrustChangeRequest{Remove: row}, "loops of publishers that you do not trust need their names typed")
			if fault.Is(err, fault.NotFound) {
				return a.show("loop-trust-change/1", wire.TrustChangeResult{}, func(p *page) { p.line("it is off already") })
			}
			return err
		}
		return fault.New(fault.Usage, "it is on or off, not %q", oneLine(args[0]))
	})
}

// trustFile is a trust.json, in the shape that KARMAX has.
type trustFile struct {
	Registries     []string `json:"registries"`
	Revoked        []string `json:"revoked"`
	AllowCommunity bool     `json:"allow_community"`
}

func (a *app) trustImportCmd() *cobra.Command {
	var yes bool
	c := a.command(spec{
		use: "import FILE", short: "take over a trust.json, KARMAX's too",
		long:    `Shows what would be trusted and revoked, and asks. What is there already stays.`,
		example: "ombud loop trust import ~/.karmax/loops/trust.json", args: cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		req, err := readTrustFile(args[0])
		if err != nil {
			return err
		}
		if !yes {
			if err := a.confirmTrust(req); err != nil {
				return err
			}
		}
		return a.changeTrust(ctx, req, "taken over: "+plural(int64(len(req.Add)), "entry"))
	})
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return c
}

func readTrustFile(path string) (req wire.TrustChangeRequest, err error) {
	const most = 1 << 20
	data, err := readPart(path, most)
	if err != nil {
		return req, err
	}
	var t trustFile
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&t); err != nil {
		return req, fault.New(fault.Invalid, "%s is no trust.json: %w", path, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return req, fault.New(fault.Invalid, "%s is no trust.json: something stands behind its end", path)
	}
	for _, key := range t.Registries {
		req.Add = append(req.Add, wire.Trust{Kind: "registry", Key: key})
	}
	for _, key := range t.Revoked {
		req.Add = append(req.Add, wire.Trust{Kind: "revoked", Key: key})
	}
	if t.AllowCommunity {
		req.Add = append(req.Add, wire.Trust{Kind: "community"})
	}
	if len(req.Add) == 0 {
		return req, fault.New(fault.Invalid, "%s trusts nobody and revokes nothing", path)
	}
	return req, nil
}

func (a *app) confirmTrust(req wire.TrustChangeRequest) error {
	for _, t := range req.Add {
		what := map[string]string{"registry": "trust the registry ", "revoked": "revoke the key ", "community": "let in loops of any publisher with a yes"}[t.Kind]
		a.note("%s%s", what, oneLine(t.Key))
	}
	q := a.asker()
	if !q.can() {
		return fault.New(fault.Usage, "an import of trust is confirmed on a terminal, or with --yes")
	}
	if !q.yes("take this over?") {
		return fault.New(fault.Cancelled, "nothing was taken over")
	}
	return nil
}

func (a *app) trustExportCmd() *cobra.Command {
	var output string
	c := a.command(spec{
		use: "export", short: "write what is trusted as a trust.json",
		long:    `In the shape that KARMAX reads, which has no place for trusted publishers.`,
		example: "ombud loop trust export -o trust.json",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.TrustList(ctx)
		if err != nil {
			return err
		}
		t := trustFile{Registries: []string{}, Revoked: []string{}}
		left := 0
		for _, x := range res.Trust {
			switch x.Kind {
			case "registry":
				t.Registries = append(t.Registries, x.Key)
			case "revoked":
				t.Revoked = append(t.Revoked, x.Key)
			case "community":
				t.AllowCommunity = true
			default:
				left++
			}
		}
		if left > 0 {
			a.note("left out: %s, for which the file has no place", plural(int64(left), "trusted publisher"))
		}
		return a.export(output, t)
	})
	c.Flags().StringVarP(&output, "output", "o", "", "the file to write (default standard output)")
	return c
}

// export writes a file that others read, or shows it.
func (a *app) export(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if path == "" {
		_, err := a.stdout.Write(text)
		return outputFault(err)
	}
	return writePublic(path, text)
}
