package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

// phrased are options whose passphrase is in the variable and is stretched for little.
func phrased(o Options, phrase string) (Options, *atomic.Int64) {
	var count atomic.Int64
	o.Environment = config.ReadEnvironment(func(name string) string {
		if name == "OMBUD_PASSPHRASE" {
			return phrase
		}
		return ""
	})
	o.stretch = func(passphrase, salt []byte, a vault.Argon2) []byte {
		count.Add(1)
		a.Memory, a.Time = 8<<10, 1
		return vault.Argon2id(passphrase, salt, a)
	}
	return o, &count
}

func TestADaemonStretchesAPassphraseOnce(t *testing.T) {
	t.Parallel()
	o, count := phrased(options(t, ""), "correct horse")
	for range 3 {
		c, stop := up(t, o)
		ask(t, c, "help")
		if n := count.Swap(0); n != 1 {
			t.Errorf("a start stretched %d times", n)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := VerifyAudit(t.Context(), o, wire.AuditVerifyRequest{}); err != nil || count.Load() != 1 {
		t.Errorf("verifying stretched %d times: %v", count.Load(), err)
	}
}

// A change is in the record, on both stores, and what opens is in no record, event or
// line of the log.
func TestAVaultChangeIsRecordedWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o, _ := phrased(options(t, storeOf(t, kind)), "correct horse")
			var log safeBuffer
			o.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			c, stop := up(t, o)
			ask(t, c, "remember that the boiler code is 4711")
			rec, err := c.VaultRecoveryKey(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.VaultPassphrase(t.Context(), wire.VaultPassphraseRequest{Passphrase: "battery staple"}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.VaultRotate(t.Context(), wire.VaultRotateRequest{Passphrase: "wrong staple"}); !fault.Is(err, fault.Permission) {
				t.Errorf("%v", err)
			}
			if _, err := c.VaultRecover(t.Context(), wire.VaultRecoverRequest{RecoveryKey: wire.Confidential(rec.RecoveryKey), Passphrase: "paper clip box"}); err != nil {
				t.Fatal(err)
			}
			tail, err := c.AuditTail(t.Context(), wire.AuditTailRequest{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range tail.Entries {
				if e.Kind == "vault" {
					got = append(got, e.Actor+" "+e.Reason+" "+e.Outcome)
				}
			}
			want := "system made ok, operator recovery key begun, operator recovery key ok, operator passphrase begun, operator passphrase ok, " +
				"operator rotate begun, operator rotate permission, operator recover begun, operator recover ok"
			if g := strings.Join(got, ", "); g != want && g != reversed(got) && reversed(got) != want {
				t.Errorf("%s", g)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			o, _ = phrased(o, "paper clip box")
			var lines bytes.Buffer
			_, err = ExportAudit(t.Context(), o, func(l wire.AuditLine) error { _, err := lines.Write(l.Line); return err })
			if err != nil {
				t.Fatal(err)
			}
			all := log.String() + lines.String()
			for _, secret := range []string{"correct horse", "battery staple", "paper clip", "wrong staple", rec.RecoveryKey, rec.RecoveryKey[:9]} {
				if strings.Contains(all, secret) {
					t.Errorf("%q was written down", secret)
				}
			}
			c, _ = up(t, o)
			if a := ask(t, c, "what is the boiler code?"); !strings.Contains(a.Reply, "4711") {
				t.Errorf("%q", a.Reply)
			}
		})
	}
}

func reversed(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[len(list)-1-i] = s
	}
	return strings.Join(out, ", ")
}

type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestOfTwoRotationsOneIsRefused(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	c, stop := up(t, o)
	var wg sync.WaitGroup
	var done atomic.Int64
	for range 12 {
		wg.Go(func() {
			switch _, err := c.VaultRotate(t.Context(), wire.VaultRotateRequest{}); {
			case err == nil:
				done.Add(1)
			case !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "":
				t.Error(err)
			}
		})
	}
	wg.Wait()
	st, err := c.VaultStatus(t.Context())
	if err != nil || done.Load() == 0 || st.Generation != 1+2*done.Load() { // each is a bridge and an end
		t.Errorf("%d done, %+v, %v", done.Load(), st, err)
	}
	// Without a daemon's leave nobody else comes near it.
	if _, err := ChangeVault(t.Context(), o, VaultRequest{RecoveryKey: true}); !fault.Is(err, fault.Running) {
		t.Errorf("beside the daemon: %v", err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := ChangeVault(t.Context(), o, VaultRequest{Rotate: &wire.VaultRotateRequest{}}); err != nil {
		t.Error(err)
	}
	_, _ = up(t, o)
}

// Who has lost the passphrase file of a daemon that runs can still have another form.
func TestALostPassphraseFileDoesNotKeepFromAnotherForm(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "passphrase")
	if err := os.WriteFile(path, []byte("correct horse"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, _ := phrased(options(t, fmt.Sprintf("vault:\n  passphrase_file: %q\n", path)), "")
	c, _ := up(t, o)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := c.VaultRotate(t.Context(), wire.VaultRotateRequest{}); !fault.Is(err, fault.Config) {
		t.Errorf("the same form, without the passphrase: %v", err)
	}
	st, err := c.VaultRotate(t.Context(), wire.VaultRotateRequest{To: "file"})
	if err != nil || len(st.Wraps) != 1 || st.Wraps[0].Kind != "file" {
		t.Errorf("%+v %v", st, err)
	}
}

func TestTheVaultIsMendedFromAnyStore(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := options(t, storeOf(t, kind))
			_, stop := up(t, o)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(o.Instance.VaultFile()); err != nil {
				t.Fatal(err)
			}
			st, err := VaultStatus(t.Context(), o)
			if err != nil || len(st.Notes) != 1 || !strings.Contains(st.Notes[0], "was lost") {
				t.Errorf("%+v %v", st, err)
			}
			c, _ := up(t, o)
			st, err = c.VaultStatus(t.Context())
			if err != nil || len(st.Notes) != 1 || st.OpenedBy != "file" {
				t.Errorf("%+v %v", st, err)
			}
			if _, err := os.Stat(o.Instance.VaultFile()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestARequestWithASecretPrintsNone(t *testing.T) {
	t.Parallel()
	req := wire.VaultRecoverRequest{RecoveryKey: "0000-1111", Passphrase: "battery staple"}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if text := fmt.Sprintf(verb, req); strings.Contains(text, "battery") || strings.Contains(text, "0000") || strings.Contains(text, "62617474") {
			t.Errorf("%s: %s", verb, text)
		}
	}
	if raw, err := json.Marshal(req); err != nil || !strings.Contains(string(raw), "battery staple") {
		t.Errorf("on the wire it is itself: %s %v", raw, err)
	}
}

func TestAPassphraseIsAskedFor(t *testing.T) {
	t.Parallel()
	o, count := phrased(options(t, "vault:\n  source: passphrase\n"), "")
	var questions []vault.Question
	o.Ask = func(_ context.Context, q vault.Question) (*vault.Secret, error) {
		questions = append(questions, q)
		return vault.NewPassphrase("the test", []byte("correct horse"))
	}
	_, stop := up(t, o)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	_, _ = up(t, o)
	if fmt.Sprint(questions) != fmt.Sprint([]vault.Question{{New: true}, {}}) || count.Load() != 2 {
		t.Errorf("%+v, stretched %d times", questions, count.Load())
	}
}

func TestNoToolReadsAPassphraseFile(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	path := filepath.Join(o.Instance.Workspace(), "notes.txt")
	if err := os.WriteFile(path, []byte("correct horse"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"none", path} {
		o := options(t, fmt.Sprintf("vault:\n  passphrase_file: %q\ntools:\n  fs:\n    root: %q\n", file, o.Instance.Workspace()))
		o, _ = phrased(o, "")
		c, _ := up(t, o)
		if a := ask(t, c, "read notes.txt"); strings.Contains(a.Reply, "correct horse") != (file == "none") {
			t.Errorf("passphrase file %s: %q", file, a.Reply)
		}
	}
}

func TestWhatOpensTheVaultIsHiddenFromPrograms(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "pass")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o := options(t, fmt.Sprintf("vault:\n  passphrase_file: %q\n", filepath.Join(link, "pass")))
	o.Environment.Credentials = link
	if got := vaultSecrets(o); len(got) != 2 || got[0] != file || got[1] != dir {
		t.Errorf("%v", got)
	}
	if got := vaultSecrets(options(t, "")); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
