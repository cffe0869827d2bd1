package cli

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/daemon"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

func vaultFiles(in instance.Instance) vault.Files { return daemon.VaultFiles(in) }

// vaultSources are the sources as this shell sees them.
func (a *app) vaultSources(loaded *config.Loaded) vault.Sources {
	return daemon.VaultSources(daemon.Options{Instance: a.where, Config: loaded, Environment: config.ReadEnvironment(a.getenv)})
}

// handed is what opens the vault, on its way to a daemon that is started here.
type handed struct {
	secret   *vault.Secret
	variable bool // it was in OMBUD_PASSPHRASE
}

// The parts of what goes through the pipe: where it came from, a line end, and it.
const handedVariable, handedTyped = "variable\n", "typed\n"

// gather finds what a daemon started here has to be handed: the variable, which does
// not go into its environment, or what a person types.
func (a *app) gather(ctx context.Context, loaded *config.Loaded) error {
	if !canHandOver {
		return nil // the daemon has the variable, and a person runs ombud up
	}
	s := a.vaultSources(loaded)
	if s.Variable != "" && (s.Use == vault.FromAuto || s.Use == vault.FromEnv) {
		secret, err := vault.NewPassphrase("the variable OMBUD_PASSPHRASE", []byte(s.Variable))
		if err != nil {
			return err
		}
		a.hand = &handed{secret, true}
		return nil
	}
	needs, fresh := vault.NeedsPerson(vaultFiles(a.where), s, exists(a.where.StateDB()))
	if !needs || !a.hasTerminal() {
		return nil // without, the daemon says what it lacks
	}
	secret, err := a.askPassphrase(ctx, vault.Question{New: fresh})
	if err != nil {
		return err
	}
	a.hand = &handed{secret, false}
	return nil
}

// bytes is what goes through the pipe; the caller wipes it.
func (h *handed) bytes() []byte {
	kind := handedTyped
	if h.variable {
		kind = handedVariable
	}
	secret := h.secret.Reveal()
	defer clear(secret)
	return append([]byte(kind), secret...)
}

// receive reads what the command that started this daemon handed to it.
func receive(r io.Reader) (*handed, error) {
	raw, err := io.ReadAll(io.LimitReader(r, 8<<10))
	if err != nil {
		return nil, fault.New(fault.Usage, "nothing was handed over: %w", err)
	}
	defer clear(raw)
	for _, kind := range []string{handedTyped, handedVariable} {
		if len(raw) > len(kind) && string(raw[:len(kind)]) == kind {
			from := "typed in the terminal"
			if kind == handedVariable {
				from = "the variable OMBUD_PASSPHRASE"
			}
			secret, err := vault.NewPassphrase(from, raw[len(kind):])
			return &handed{secret, kind == handedVariable}, err
		}
	}
	return nil, fault.New(fault.Usage, "nothing was handed over")
}

func (a *app) vaultCmd() *cobra.Command {
	status := a.vaultStatusCmd()
	return byDefault(a.noun(spec{
		use:   "vault",
		short: "what opens the store: key file, passphrase, keyring, recovery key",
		long: `Everything ombud keeps is sealed under one master key. The vault file holds that key
wrapped by what opens it; changing that leaves the master key, and so all data, as
it is. The commands work with and without a daemon.`,
		example: "ombud vault status\nombud vault passphrase\nombud vault recovery-key",
	}, status, a.vaultPassphraseCmd(), a.vaultRotateCmd(), a.vaultRecoverCmd(), a.vaultRecoveryKeyCmd()), status)
}

func (a *app) vaultStatusCmd() *cobra.Command {
	return a.command(spec{
		use:     "status",
		short:   "what opens the vault, and what that does not protect",
		example: "ombud vault status\nombud vault status --json",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.client.VaultStatus(ctx)
		if errors.Is(err, wire.ErrNoDaemon) {
			res, err = a.vaultOffline(ctx)
		}
		if err != nil {
			return err
		}
		return a.showVault(res, "")
	})
}

func (a *app) vaultOffline(ctx context.Context) (wire.VaultStatus, error) {
	if a.roof.VaultStatus == nil {
		return wire.VaultStatus{}, notHere("look at the vault")
	}
	p, err := a.place()
	if err != nil {
		return wire.VaultStatus{}, err
	}
	return a.roof.VaultStatus(ctx, p)
}

// changeVault changes the vault through the daemon or, when none runs, itself.
func (a *app) changeVault(ctx context.Context, req daemon.VaultRequest, call func() (wire.VaultRecoveryKeyResult, error)) (wire.VaultRecoveryKeyResult, error) {
	res, err := call()
	if !errors.Is(err, wire.ErrNoDaemon) {
		return res, err
	}
	if a.roof.ChangeVault == nil {
		return res, notHere("change the vault")
	}
	p, err := a.place()
	if err != nil {
		return res, err
	}
	return a.roof.ChangeVault(ctx, p, req)
}

func only(s wire.VaultStatus, err error) (wire.VaultRecoveryKeyResult, error) {
	return wire.VaultRecoveryKeyResult{Vault: s}, err
}

const stdinFlag = "stdin"

func (a *app) vaultPassphraseCmd() *cobra.Command {
	var keep, fromStdin bool
	c := a.command(spec{
		use:   "passphrase",
		short: "set or change the passphrase",
		long: `Asks for a new passphrase, twice. When it is proved to open the vault, the key file
is removed. A daemon that starts later needs it: from you in a terminal, or from
vault.passphrase_file, OMBUD_PASSPHRASE or a systemd credential.`,
		example: "ombud vault passphrase\nombud vault passphrase --stdin < /run/secrets/new",
	}, func(ctx context.Context, _ []string) error {
		var secret *vault.Secret
		var err error
		if fromStdin {
			var lines [][]byte
			if lines, err = a.stdinLines(1); err == nil {
				secret, err = vault.NewPassphrase("standard input", lines[0])
			}
		} else {
			secret, err = a.askNewPassphrase(ctx)
		}
		if err != nil {
			return err
		}
		defer secret.Wipe()
		req := wire.VaultPassphraseRequest{Passphrase: wire.Confidential(secret.Reveal()), KeepKeyFile: keep}
		res, err := a.changeVault(ctx, daemon.VaultRequest{Passphrase: &req}, func() (wire.VaultRecoveryKeyResult, error) {
			return only(a.client.VaultPassphrase(ctx, req))
		})
		if err != nil {
			return err
		}
		return a.showVault(res.Vault, "the passphrase is set")
	})
	c.Flags().BoolVar(&keep, "keep-key-file", false, "let the key file open the vault too")
	c.Flags().BoolVar(&fromStdin, stdinFlag, false, "read it from standard input, one line")
	return c
}

func (a *app) vaultRotateCmd() *cobra.Command {
	var to string
	var fromStdin bool
	c := a.command(spec{
		use:   "rotate",
		short: "make new keys for what opens the vault",
		long: `Makes a new key file, a new key in the keyring, and for a passphrase a new salt and
the parameters of today. The master key and all data stay: an old copy of the vault
file still opens with what opened it then. A recovery key stays good; to replace
it: ombud vault recovery-key.

With --to, the vault opens by that alone afterwards, and by the recovery key.`,
		example: "ombud vault rotate\nombud vault rotate --to keyring\nombud vault rotate --to file",
	}, func(ctx context.Context, _ []string) error {
		if to != "" && to != string(vault.ByFile) && to != string(vault.ByKeyring) {
			return fault.New(fault.Usage, "--to is file or keyring, not %q", to).WithHint("for a passphrase: ombud vault passphrase")
		}
		req := wire.VaultRotateRequest{To: to}
		if fromStdin {
			lines, err := a.stdinLines(1)
			if err != nil {
				return err
			}
			req.Passphrase = wire.Confidential(lines[0])
		}
		rotate := func() (wire.VaultRecoveryKeyResult, error) {
			return a.changeVault(ctx, daemon.VaultRequest{Rotate: &req}, func() (wire.VaultRecoveryKeyResult, error) {
				return only(a.client.VaultRotate(ctx, req))
			})
		}
		res, err := rotate()
		if fault.Is(err, fault.Invalid) && req.Passphrase == "" { // it needs the passphrase
			if req.Passphrase, err = a.present(ctx); err != nil {
				return err
			}
			res, err = rotate()
		}
		if err != nil {
			return err
		}
		return a.showVault(res.Vault, "rotated")
	})
	c.Flags().StringVar(&to, "to", "", "what shall open the vault: `file or keyring`")
	c.Flags().BoolVar(&fromStdin, stdinFlag, false, "read the present passphrase from standard input, one line")
	return c
}

// present is the passphrase that opens the vault now: typed a moment ago, in the
// variable, or asked for.
func (a *app) present(ctx context.Context) (wire.Confidential, error) {
	if a.answered != nil {
		return wire.Confidential(a.answered.Reveal()), nil
	}
	if v := config.ReadEnvironment(a.getenv).Passphrase; v.Set() {
		return wire.Confidential(v.Reveal()), nil
	}
	secret, err := a.askPassphrase(ctx, vault.Question{})
	if err != nil {
		return "", err
	}
	defer secret.Wipe()
	return wire.Confidential(secret.Reveal()), nil
}

func (a *app) vaultRecoverCmd() *cobra.Command {
	var to string
	var fromStdin bool
	c := a.command(spec{
		use:   "recover",
		short: "open the vault with the recovery key and set a new passphrase",
		long: `Asks for the recovery key, then for a new passphrase, twice. What opened the vault
before does not open it any more; the recovery key does. With --to file there is a
key file instead of a passphrase.

A vault file that was lost or damaged needs no recovery key: the store keeps a copy,
which the next start puts in place.`,
		example: "ombud vault recover\nombud vault recover --to file",
	}, func(ctx context.Context, _ []string) error {
		if to != string(vault.ByPassphrase) && to != string(vault.ByFile) {
			return fault.New(fault.Usage, "--to is passphrase or file, not %q", to)
		}
		req, err := a.recovery(ctx, to == string(vault.ByPassphrase), fromStdin)
		if err != nil {
			return err
		}
		res, err := a.changeVault(ctx, daemon.VaultRequest{Recover: &req}, func() (wire.VaultRecoveryKeyResult, error) {
			return only(a.client.VaultRecover(ctx, req))
		})
		if err != nil {
			return err
		}
		return a.showVault(res.Vault, "recovered")
	})
	c.Flags().StringVar(&to, "to", string(vault.ByPassphrase), "what shall open the vault: `passphrase or file`")
	c.Flags().BoolVar(&fromStdin, stdinFlag, false, "read the recovery key and the passphrase from standard input, a line each")
	return c
}

func (a *app) recovery(ctx context.Context, phrase, fromStdin bool) (req wire.VaultRecoverRequest, err error) {
	var lines [][]byte
	switch {
	case fromStdin && phrase:
		lines, err = a.stdinLines(2)
	case fromStdin:
		lines, err = a.stdinLines(1)
	default:
		var key []byte
		key, err = a.typed(ctx, "Recovery key:")
		lines = [][]byte{key}
	}
	if err != nil {
		return req, err
	}
	req.RecoveryKey = wire.Confidential(lines[0])
	key, err := vault.NewRecoverySecret(lines[0]) // a typo is told before anything else is asked
	if err != nil {
		return req, err
	}
	key.Wipe()
	if !phrase {
		return req, nil
	}
	var secret *vault.Secret
	if fromStdin {
		// An empty one must not pass for none, which asks for a key file.
		secret, err = vault.NewPassphrase("the second line of standard input", lines[1])
	} else {
		secret, err = a.askNewPassphrase(ctx)
	}
	if err != nil {
		return req, err
	}
	defer secret.Wipe()
	req.Passphrase = wire.Confidential(secret.Reveal())
	return req, nil
}

func (a *app) vaultRecoveryKeyCmd() *cobra.Command {
	return a.command(spec{
		use:   "recovery-key",
		short: "make a recovery key, and show it once",
		long: `Makes a key that opens the vault when all else is lost, and shows it this once:
write it down and keep it where neither the store nor its backups are. The one made
before is good no longer.`,
		example: "ombud vault recovery-key",
	}, func(ctx context.Context, _ []string) error {
		res, err := a.changeVault(ctx, daemon.VaultRequest{RecoveryKey: true}, func() (wire.VaultRecoveryKeyResult, error) {
			return a.client.VaultRecoveryKey(ctx)
		})
		if err != nil {
			return err
		}
		return a.show("vault-recovery-key/1", res, func(p *page) {
			p.line("%s", p.strong(res.RecoveryKey))
			p.line("")
			p.line("This is the recovery key of the vault (instance %s). It is not kept anywhere and not shown again.", a.where.Name)
		})
	})
}

func (a *app) showVault(res wire.VaultStatus, done string) error {
	return a.show("vault/1", res, func(p *page) {
		if done != "" {
			p.line("%s", p.good(done))
		}
		switch {
		case res.From != "" && res.Open:
			p.field("open", "yes, by "+res.From+" at the daemon's start")
		case res.From != "":
			p.field("opened", "by "+res.From)
		default:
			p.field("open", "no daemon runs")
		}
		p.field("source", "vault.source is "+res.Source)
		p.field("key", res.Fingerprint)
		name := "opens by"
		for _, w := range res.Wraps {
			text := pad(w.Kind, 12)
			if w.MadeAt > 0 {
				text += "made " + p.clock(w.MadeAt)
			}
			if w.Parameters != "" {
				text += ", " + w.Parameters
			}
			if w.Account != "" {
				text += ", account " + w.Account
			}
			p.line("%s%s", p.faint(pad(name, fieldWidth)), text)
			name = ""
		}
		for _, n := range res.Notes {
			p.field("found", n)
		}
		name = "not against"
		for _, e := range res.Exposed {
			p.line("%s%s", p.faint(pad(name, fieldWidth)), e)
			name = ""
		}
	})
}

// secretPipe is the descriptor what is handed over comes through.
const secretPipe = 3

// takeHanded reads it and closes the pipe, so that no child of the daemon has it.
func takeHanded() (*handed, error) {
	f := os.NewFile(secretPipe, "secret")
	if f == nil {
		return nil, fault.New(fault.Usage, "nothing was handed over")
	}
	defer f.Close()
	return receive(f)
}
