package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/daemon"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/instance"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

// Place is the instance a command is about and its configuration.
type Place struct {
	Instance    instance.Instance
	Config      *config.Loaded
	Environment config.Environment

	// Ask asks a person for the passphrase of the vault; nil if there is none.
	Ask func(context.Context, vault.Question) (*vault.Secret, error)
}

// UpOptions is what a daemon is run with.
type UpOptions struct {
	Place
	Logger  *slog.Logger
	Version string // as Status.Version
	Auto    bool   // a command started it by itself: Status.Detached
	Ready   func() // called once, when clients can connect
	Handed  *handed
}

// UpFunc runs a daemon until ctx ends or it is told to stop. Its error has a
// class: Running when another daemon holds the instance.
type UpFunc func(ctx context.Context, o UpOptions) error

// Roof is what the command line needs beyond a daemon that answers. A field that
// is nil makes its command say that this build cannot do it without a daemon.
type Roof struct {
	Up UpFunc

	// These work on the store while no daemon has it.
	VerifyAudit func(context.Context, Place, wire.AuditVerifyRequest) (wire.AuditVerifyResult, error)
	ExportAudit func(ctx context.Context, p Place, line func(wire.AuditLine) error) (wire.AuditExportResult, error)
	CheckStore  func(context.Context, Place) []wire.Check
	Backup      func(ctx context.Context, p Place, req wire.BackupCreateRequest, note func(wire.BackupProgress) error) (wire.BackupResult, error)
	Restore     func(ctx context.Context, p Place, o RestoreOptions) (wire.RestoreResult, error)

	StoreStatus   func(context.Context, Place) (daemon.StoreState, error)
	TakeBackStore func(context.Context, Place) (file, from string, err error)
	MoveStore     func(ctx context.Context, p Place, to *config.Loaded, leave bool, report func(table string, rows int64)) (daemon.MovedStore, error)

	// VerifyBackup checks a backup without touching the instance; it unpacks it below
	// scratch unless quick is set.
	VerifyBackup func(ctx context.Context, p Place, file, scratch string, quick bool, note func(wire.BackupProgress) error) (wire.BackupVerifyResult, error)
	VaultStatus  func(context.Context, Place) (wire.VaultStatus, error)
	ChangeVault  func(context.Context, Place, daemon.VaultRequest) (wire.VaultRecoveryKeyResult, error)

	// VerifyAuditFile checks an export with a public key alone and, unless the path is
	// empty, a file of anchors.
	VerifyAuditFile func(ctx context.Context, r io.Reader, publicKey, anchors string) (wire.AuditVerifyResult, error)
}

// Main runs one command and returns its exit code.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return roof().Main(ctx, args, stdin, stdout, stderr)
}

// Main is the function Main with this roof.
func (r Roof) Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{
		roof:   r,
		stdin:  stdin,
		stdout: stdout,
		stderr: stderr,
		getenv: config.OSEnv(),
		now:    time.Now,
	}
	a.style = styleFor(a.getenv, stdout)
	return a.report(a.execute(ctx, args))
}

// app is one command being run.
type app struct {
	roof           Roof
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	now            func() time.Time
	style          style

	// Set from the global flags before a command runs.
	json     bool
	instance string
	where    instance.Instance
	client   *wire.Client

	hand     *handed       // what opens the vault of a daemon that is started here
	answered *vault.Secret // what a person typed to open it here

	began bool // the command line was right and its command has begun
}

func (a *app) execute(ctx context.Context, args []string) error {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil || a.began {
		return err
	}
	if _, ours := errors.AsType[*fault.Error](err); ours {
		return err
	}
	return fault.New(fault.Usage, "%w", err).WithHint("ombud --help lists the commands") // what cobra itself refuses
}

// setup is run before every command, when its flags are known.
func (a *app) setup() error {
	name := a.instance
	if name == "" {
		name = a.getenv("OMBUD_INSTANCE")
	}
	where, err := instance.New(name, a.getenv, config.Home())
	if err != nil {
		return err
	}
	a.where = where
	a.client = wire.NewClient(where.Socket())
	return nil
}

// answered ends a command whose answer is "no": it was given, nothing is left to
// say, and the exit code tells.
type answered struct{ code int }

func (answered) Error() string { return "the answer is no" }

// report tells an error to the person and returns the exit code.
func (a *app) report(err error) int {
	if err == nil {
		return 0
	}
	if no, ok := errors.AsType[answered](err); ok {
		return no.code
	}
	msg := guard.CleanText(strings.TrimSpace(err.Error()))
	if fault.Is(err, fault.Internal) {
		msg = "internal: " + msg
	}
	fmt.Fprintf(a.stderr, "%s %s\n", a.style.bad("error:"), msg)
	if hint := fault.HintOf(err); hint != "" {
		fmt.Fprintf(a.stderr, "%s %s\n", a.style.faint("hint:"), guard.CleanText(hint))
	}
	return fault.Exit(err)
}

// note tells the person something beside the result.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.stderr, "%s\n", a.style.faint(guard.CleanText(fmt.Sprintf(format, args...))))
}

// notHere is the error of what the roof does not have.
func notHere(what string) error {
	return fault.New(fault.Unavailable, "this build of ombud cannot %s without a daemon", what).
		WithHint("ombud up")
}
