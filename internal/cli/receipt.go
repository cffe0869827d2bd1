package cli

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

// maxReceipt is far over any receipt: a line an event.
const maxReceipt = 256 << 20

// receiptResult is the answer of `receipt verify --json`.
type receiptResult struct {
	Valid     bool   `json:"valid"`
	Trusted   bool   `json:"trusted"` // signed by a key that was known beforehand
	Run       string `json:"run"`
	State     string `json:"state"`
	Steps     int    `json:"steps"`
	Unknown   int    `json:"unknown_steps"`
	Events    int    `json:"events"`
	PublicKey string `json:"public_key"`
}

func (a *app) receiptCmd() *cobra.Command {
	var pubkey string
	verify := a.command(spec{
		use:   "verify FILE",
		short: "check a receipt, without a daemon",
		long: `Checks the arithmetic and the signature of a receipt. The key is that of --pubkey, or
of this instance; without either, the receipt's own, which shows only that it is
whole. "-" reads standard input. Exits 5 if it does not hold.`,
		example: "ombud receipt verify receipt.json\nombud receipt verify receipt.json --pubkey 3b6a27…",
		args:    cobra.ExactArgs(1),
	}, func(_ context.Context, args []string) error {
		data, err := a.readFile(args[0], maxReceipt)
		if err != nil {
			return err
		}
		key, err := a.knownKey(pubkey)
		if err != nil {
			return err
		}
		r, err := run.VerifyReceipt(data, key)
		if err != nil {
			return err
		}
		res := receiptResult{
			Valid: true, Trusted: key != nil, Run: r.Run, State: string(r.State), Steps: r.Steps, Unknown: r.Unknown,
			Events: len(r.Events), PublicKey: r.PublicKey,
		}
		return a.show("receipt-verify/1", res, func(p *page) {
			p.line("%s: %s %s, %s, %s", p.good("ok"), res.Run, res.State, plural(int64(res.Steps), "step"), plural(int64(res.Events), "event"))
			if res.Unknown > 0 {
				p.line("%s", p.warn(plural(int64(res.Unknown), "step")+" with an unknown outcome"))
			}
			if !res.Trusted {
				p.line("%s", p.warn("whole, but whose it is was not checked: compare its key, or give --pubkey"))
			}
			p.field("key", res.PublicKey)
		})
	})
	verify.Flags().StringVar(&pubkey, "pubkey", "", "the key it has to be signed with")
	return a.noun(spec{use: "receipt", short: "what proves a run", example: "ombud receipt show run_0197a3\nombud receipt verify receipt.json"},
		a.receiptShowCmd(), verify)
}

func (a *app) receiptShowCmd() *cobra.Command {
	return a.command(spec{
		use:   "show ID",
		short: "what the receipt of a run says, and whether it holds",
		long: `Asks the daemon for the receipt of a run that has ended and checks it here, with the
key of this instance. ombud runs receipt ID writes the receipt itself.`,
		example: "ombud receipt show run_0197a3",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		res, err := a.client.RunsReceipt(ctx, wire.RunsReceiptRequest{ID: args[0]})
		if err != nil {
			return err
		}
		key, err := a.knownKey("")
		if err != nil {
			return err
		}
		r, err := run.VerifyReceipt(res.Receipt, key)
		if err != nil {
			return err
		}
		return a.show("run-receipt/1", res, func(p *page) { receiptPage(p, r, key != nil) })
	})
}

func receiptPage(p *page, r run.Receipt, trusted bool) {
	p.line("%s", p.strong(oneLine(r.Run)))
	p.field("state", p.outcome(string(r.State)))
	p.field("kind", oneLine(r.Kind+" "+r.Name))
	p.field("definition", oneLine(r.Definition))
	p.field("created", p.clock(r.Created))
	p.field("ended", p.clock(r.Ended)+", after "+span(micros(r.Ended-r.Created)))
	steps := plural(int64(r.Steps), "step")
	if r.Unknown > 0 {
		steps += p.warn(fmt.Sprintf(", %d with an unknown outcome", r.Unknown))
	}
	p.field("steps", steps+", "+plural(int64(len(r.Events)), "event"))
	p.field("cost", money(r.CostMicro, r.CostKnown))
	p.field("head", r.Head)
	key := r.PublicKey
	if trusted {
		key += ", that of this instance"
	}
	p.field("signed by", key)
}

// knownKey is the key given, else that of this instance, else none.
func (a *app) knownKey(given string) (ed25519.PublicKey, error) {
	if given != "" {
		keys, err := parseKey(given)
		return keys.Public, err
	}
	key, err := vault.PublicKeyOf(vaultFiles(a.where))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return key, err
}

// parseKey reads a public key as ombud prints it or as a receipt writes it, in hex.
func parseKey(s string) (vault.Keys, error) {
	if raw, err := hex.DecodeString(s); err == nil && len(raw) == ed25519.PublicKeySize {
		return vault.Keys{Public: raw}, nil
	}
	return vault.ParsePublicKey(s)
}

// readFile reads a file a person names, "-" for standard input.
func (a *app) readFile(name string, limit int64) ([]byte, error) {
	r := a.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, namedFileFault(err)
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, fault.New(fault.Unavailable, "read %s: %w", name, err)
	case int64(len(data)) > limit:
		return nil, fault.New(fault.Usage, "%s is longer than %s", name, size(limit))
	}
	return data, nil
}

// namedFileFault is for files named on the command line.
func namedFileFault(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fault.New(fault.Permission, "%w", err)
	}
	return fault.New(fault.Usage, "%w", err)
}
