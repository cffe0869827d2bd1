package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

// How a check ended.
const (
	checkOK   = "ok"
	checkWarn = "warn"
	checkFail = "fail"
	checkSkip = "skip"
)

// doctorResult is the answer of `doctor --json`.
type doctorResult struct {
	Healthy bool         `json:"healthy"` // nothing failed
	Running bool         `json:"running"`
	Checks  []wire.Check `json:"checks"`
}

func (a *app) doctorCmd() *cobra.Command {
	return a.command(spec{
		use:   "doctor",
		short: "look at everything ombud depends on",
		long: `Looks at paths, permissions, the key, the lock, the disk, the clock, the store and
the models, with and without a daemon, and changes nothing. Keys are never shown.
Exits 1 if something failed; a warning is no failure.`,
		example: "ombud doctor\nombud doctor --json | jq '.checks[] | select(.status != \"ok\")'",
	}, func(ctx context.Context, _ []string) error {
		res := a.examine(ctx)
		if err := a.show("doctor/1", res, func(p *page) { doctorPage(p, res) }); err != nil || res.Healthy {
			return err
		}
		return answered{1}
	})
}

// checks collects what doctor finds.
type checks []wire.Check

func (c *checks) add(id, status, hint, detail string, args ...any) {
	*c = append(*c, wire.Check{ID: id, Status: status, Detail: fmt.Sprintf(detail, args...), Hint: hint})
}

// fail adds an error with its own hint.
func (c *checks) fail(id string, err error) { c.add(id, checkFail, fault.HintOf(err), "%v", err) }

func (a *app) examine(ctx context.Context) doctorResult {
	var c checks
	loaded, err := a.loadConfig()
	if err != nil {
		c.fail("config.valid", err)
	} else {
		c.configured(a.where.ConfigFile())
	}
	c.directories(a)
	c.vault(a, loaded)
	c.disk(a.where.StateDir)
	c.clock(a.now())
	running, err := a.running(ctx)
	switch {
	case err != nil:
		c.fail("daemon.answers", err)
	case running:
		c.add("daemon.answers", checkOK, "", "a daemon answers on %s", a.where.Socket())
		c.daemon(ctx, a.client)
	default:
		c.add("daemon.answers", checkSkip, "", "no daemon runs")
		c.lock(a.where.LockFile())
	}
	if loaded != nil {
		c.models(loaded.Config, config.ReadEnvironment(a.getenv), running)
		c.postgres(ctx, loaded.Config.Store.Postgres)
		if !running && err == nil {
			c.store(ctx, a, loaded)
		}
	}
	res := doctorResult{Healthy: true, Running: running, Checks: c}
	for _, check := range c {
		if check.Status == checkFail {
			res.Healthy = false
		}
	}
	return res
}

func (c *checks) configured(path string) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		c.add("config.valid", checkOK, "", "no file at %s: every value is its default", path)
		return
	}
	c.add("config.valid", checkOK, "", "%s", path)
}

// directories looks at what MakeDirs would refuse.
func (c *checks) directories(a *app) {
	in := a.where
	if err := in.CheckRuntime(); err != nil {
		c.fail("runtime.private", err)
	} else {
		c.add("runtime.private", checkOK, "", "%s", in.RuntimeDir)
	}
	info, err := os.Stat(in.StateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.add("state.private", checkSkip, "", "%s is made at the first start", in.StateDir)
	case err != nil:
		c.fail("state.private", err)
	case modesMatter && info.Mode().Perm()&0o077 != 0:
		c.add("state.private", checkFail, fmt.Sprintf("chmod 700 %s", in.StateDir), "others can enter %s (mode %04o)", in.StateDir, info.Mode().Perm())
	default:
		c.add("state.private", checkOK, "", "%s", in.StateDir)
	}
}

// vault looks at what opens the store, without opening anything.
func (c *checks) vault(a *app, loaded *config.Loaded) {
	if loaded == nil {
		return // what opens it is configured
	}
	f, s := vaultFiles(a.where), a.vaultSources(loaded)
	st, err := vault.Look(f, s, vault.Memory{})
	switch {
	case errors.Is(err, fs.ErrNotExist) && !exists(a.where.StateDB()):
		c.add("key.usable", checkSkip, "", "%s is made at the first start", f.Envelope)
		return
	case errors.Is(err, fs.ErrNotExist):
		c.add("key.usable", checkFail, "ombud up puts the copy in place that the store keeps; else restore it from a backup",
			"the store is there, its vault file %s is not", f.Envelope)
		return
	case err != nil:
		c.fail("key.usable", err)
		return
	case !exists(f.Envelope):
		c.add("key.usable", checkWarn, "ombud up puts the copy in place that the store keeps, or makes one around the key file",
			"there is no vault file %s", f.Envelope)
		return
	}
	var kinds []string
	for _, w := range st.Wraps {
		kinds = append(kinds, string(w.Kind))
		if w.Kind != vault.ByFile {
			continue
		}
		if err := vault.CheckKeyFile(f.Key); err != nil && !(errors.Is(err, fs.ErrNotExist) && len(st.Wraps) > 1) {
			c.fail("key.usable", err)
			return
		}
	}
	c.add("key.usable", checkOK, "", "the vault opens by %s (vault.source is %s)", strings.Join(kinds, " or "), st.Use)
	if path := s.PassphraseFile; path != "" {
		secret, err := vault.ReadPassphraseFile(path)
		if err != nil {
			c.fail("key.passphrase", err)
		}
		secret.Wipe()
	}
	c.add("key.protects", checkWarn, "ombud vault status tells all of it; ombud vault passphrase sets a passphrase", "not against %s", st.Exposed[0])
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Under these a disk is worth a word, or too full to work.
const (
	diskLow  = 1 << 30
	diskFull = 64 << 20
)

func (c *checks) disk(dir string) {
	for !exists(dir) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir) // of what will be made there
	}
	free, err := freeSpace(dir)
	switch {
	case err != nil:
		c.add("disk.space", checkSkip, "", "%v", err)
	case free < diskFull:
		c.add("disk.space", checkFail, "free some space; until then ombud reads but takes nothing new", "%s free at %s", size(free), dir)
	case free < diskLow:
		c.add("disk.space", checkWarn, "", "%s free at %s", size(free), dir)
	default:
		c.add("disk.space", checkOK, "", "%s free at %s", size(free), dir)
	}
}

// clock finds a clock that was never set, as on a board without a battery.
func (c *checks) clock(now time.Time) {
	const lastYear = 2025
	if now.Year() <= lastYear {
		c.add("clock.set", checkFail, "set the clock: reminders and approvals depend on it", "the clock says %s", now.Format(time.RFC3339))
		return
	}
	zone, _ := now.Zone()
	c.add("clock.set", checkOK, "", "%s, zone %s", now.Format(time.RFC3339), zone)
}

func (c *checks) lock(path string) {
	pid, held, err := lockHolder(path)
	switch {
	case err != nil:
		c.add("lock.free", checkSkip, "", "%v", err)
	case held:
		c.add("lock.free", checkFail, fmt.Sprintf("it may be starting or ending; if it stays: kill %s", pid), "process %s holds %s and does not answer", pid, path)
	default:
		c.add("lock.free", checkOK, "", "nobody holds it")
	}
}

// daemon adds what only the daemon can see.
func (c *checks) daemon(ctx context.Context, client *wire.Client) {
	res, err := client.DoctorRun(ctx)
	if err != nil {
		c.fail("daemon.checks", err)
		return
	}
	*c = append(*c, res.Checks...)
}

// models tells which keys there are, never what is in them.
func (c *checks) models(cfg config.Config, env config.Environment, running bool) {
	where := "in this shell"
	if running {
		where += " (a running daemon keeps those it was started with)"
	}
	var have []string
	if env.AnthropicAPIKey.Set() {
		have = append(have, "ANTHROPIC_API_KEY")
	}
	if env.OpenAIAPIKey.Set() {
		have = append(have, "OPENAI_API_KEY")
	}
	switch {
	case len(have) > 0:
		c.add("models.key", checkOK, "", "%s set %s", strings.Join(have, " and "), where)
	case cfg.Models.Main.Auto():
		c.add("models.key", checkWarn, "set ANTHROPIC_API_KEY or OPENAI_API_KEY, or run Ollama; without one ombud understands a few plain commands only",
			"neither ANTHROPIC_API_KEY nor OPENAI_API_KEY is set %s", where)
	default:
		c.add("models.key", checkOK, "", "the model is configured: %s", cfg.Models.Main)
	}
}

// postgres knocks at the server; whether it lets us in, the store check tells.
func (c *checks) postgres(ctx context.Context, dsn config.Secret) {
	if !dsn.Set() {
		return
	}
	network, addr, err := postgresAddress(dsn.Reveal())
	if err != nil {
		c.fail("postgres.reachable", err)
		return
	}
	d := net.Dialer{Timeout: 3 * time.Second}
	conn, err := d.DialContext(ctx, network, addr)
	if err != nil {
		c.add("postgres.reachable", checkFail, "start the server, or change store in the configuration", "%v", err)
		return
	}
	_ = conn.Close() // nothing was said
	c.add("postgres.reachable", checkOK, "", "%s", addr)
}

// postgresAddress takes the address out of a URL, of which nothing else may be
// shown. A host that is a directory means a socket in it.
func postgresAddress(dsn string) (network, addr string, err error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", "", fault.New(fault.Config, "store is not a URL") // the cause would repeat it
	}
	host, port := u.Hostname(), u.Port()
	if q := u.Query().Get("host"); host == "" && q != "" {
		host = q
	}
	if port == "" {
		port = "5432"
	}
	switch {
	case strings.HasPrefix(host, "/"):
		return "unix", filepath.Join(host, ".s.PGSQL."+port), nil
	case host == "":
		host = "localhost"
	}
	return "tcp", net.JoinHostPort(host, port), nil
}

// store looks into the store, which nobody holds.
func (c *checks) store(ctx context.Context, a *app, loaded *config.Loaded) {
	if a.roof.CheckStore == nil {
		c.add("store.sound", checkSkip, "", "only a running daemon can tell")
		return
	}
	if !loaded.Config.Store.Postgres.Set() && !exists(a.where.StateDB()) {
		c.add("store.sound", checkSkip, "", "%s is made at the first start", a.where.StateDB())
		return
	}
	*c = append(*c, a.roof.CheckStore(ctx, a.placeOf(loaded))...)
}

func doctorPage(p *page, res doctorResult) {
	width := 0
	for _, c := range res.Checks {
		width = max(width, len(c.ID)+2)
	}
	var warned, failed int64
	for _, c := range res.Checks {
		status := pad(c.Status, 6)
		switch c.Status {
		case checkOK:
			status = p.good(status)
		case checkWarn:
			status = p.warn(status)
			warned++
		case checkFail:
			status = p.bad(status)
			failed++
		default:
			status = p.faint(status)
		}
		p.line("%s%s%s", status, pad(c.ID, width), strings.ReplaceAll(c.Detail, "\n", "\n"+strings.Repeat(" ", width+6)))
		if c.Hint != "" && c.Status != checkOK {
			p.line("%s%s", strings.Repeat(" ", width+6), p.faint(c.Hint))
		}
	}
	p.line("")
	switch {
	case failed > 0:
		p.line("%s", p.bad(plural(failed, "check")+" failed"))
	case warned > 0:
		p.line("nothing failed, %s", plural(warned, "warning"))
	default:
		p.line("all is well")
	}
}
