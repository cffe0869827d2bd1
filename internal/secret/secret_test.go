package secret

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/eventlog"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/redact"
	"github.com/ombud-run/ombud/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type bench struct {
	*Secrets
	db    *db.DB
	vault *vault.Vault
	log   *eventlog.Log
	chain *audit.Audit
	hide  *redact.Redactor
}

func setup(t testing.TB, d *db.DB) *bench {
	t.Helper()
	v, err := vault.OpenKeyFile(filepath.Join(t.TempDir(), "key"))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	b := &bench{db: d, vault: v, log: eventlog.NewLog(d, v, quiet, eventlog.Options{}), chain: audit.New(d, v, "test", quiet)}
	if err := b.chain.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.chain.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	b.again()
	return b
}

// again is the next process on the same store.
func (b *bench) again() {
	b.hide = redact.New()
	b.Secrets = New(b.db, b.vault, b.log, b.chain, b.hide)
}

func (b *bench) set(t testing.TB, name, value string, hosts ...string) Info {
	t.Helper()
	i, err := b.Set(t.Context(), Setting{Name: name, Value: []byte(value), Hosts: hosts}, ByOperator)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

const value1, value2 = "first-value-0001", "second-value-0002"

func TestASecretIsKeptReplacedAndRemoved(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b, ctx := setup(t, d), t.Context()
		if _, err := b.Resolve(ctx, "api"); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "ombud secret set api") {
			t.Errorf("before it is set: %v, hint %q", err, fault.HintOf(err))
		}
		first := b.set(t, "api", value1, "api.example.com")
		second := b.set(t, "api", value2)
		if first.Version != 1 || second.Version != 2 || first.Fingerprint == second.Fingerprint || len(second.Hosts) > 0 || second.By != "operator" {
			t.Errorf("%+v, %+v", first, second)
		}
		if again := b.set(t, "other", value1); again.Fingerprint != first.Fingerprint {
			t.Error("the same value has another fingerprint")
		}
		b.again()
		if err := b.Load(ctx); err != nil {
			t.Fatal(err)
		}
		if got := b.hide.String(value1 + " " + value2); got != "[secret:other] [secret:api]" {
			t.Errorf("after a start: %s", got)
		}
		v, err := b.Resolve(ctx, "api")
		if err != nil || v.Reveal() != value2 {
			t.Errorf("%v, %v", v, err)
		}
		list, err := b.List(ctx)
		if err != nil || len(list) != 2 || list[0].Name != "api" || list[0].UsedAt == 0 || list[1].UsedAt != 0 {
			t.Errorf("%+v, %v", list, err)
		}
		if err := errors.Join(b.Flush(ctx), b.Flush(ctx)); err != nil {
			t.Fatal(err)
		}
		b.again()
		if kept, err := b.List(ctx); err != nil || kept[0].UsedAt != list[0].UsedAt {
			t.Errorf("%+v, %v", kept, err)
		}
		if _, err := b.Remove(ctx, "api", ByOperator); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Remove(ctx, "api", ByOperator); !fault.Is(err, fault.NotFound) {
			t.Errorf("removed twice: %v", err)
		}
		if err := b.Check(ctx, "api"); !fault.Is(err, fault.NotFound) {
			t.Errorf("removed: %v", err)
		}
		b.told(t, "api", KindSet, KindSet, KindRemoved)
	})
}

// told checks the events of a secret, and that neither they nor the audit hold a value.
func (b *bench) told(t *testing.T, name string, kinds ...string) {
	t.Helper()
	evs, err := b.log.Stream(t.Context(), "secret:"+name, 0, 100)
	var got []string
	for _, e := range evs {
		got = append(got, e.Kind)
		if raw := string(e.Data); strings.Contains(raw, value1) || strings.Contains(raw, value2) || !strings.Contains(raw, name) {
			t.Errorf("the event says %s", raw)
		}
	}
	if err != nil || !slices.Equal(got, kinds) {
		t.Errorf("events %v, %v", got, err)
	}
	var export bytes.Buffer
	if err := b.chain.Export(t.Context(), &export); err != nil {
		t.Fatal(err)
	}
	if text := export.String(); strings.Contains(text, value1) || strings.Contains(text, value2) ||
		strings.Count(text, `"subject":"secret:`+name+`"`) != len(kinds) {
		t.Errorf("the audit says %s", text)
	}
}

// A secret that is set or removed as part of a transaction is so if that commits; its value is
// hidden either way, and before.
func TestASecretJoinsATransaction(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		undone := fault.New(fault.Conflict, "something else failed")
		set := func(value string, end error) error {
			return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if _, err := b.SetTx(ctx, tx, Setting{Name: "api", Value: []byte(value)}, ByOperator); err != nil {
					return err
				}
				return end
			})
		}
		b.Hide("api", []byte("tried-first-0001"))
		if err := set("undone-value-0002", undone); !fault.Is(err, fault.Conflict) {
			t.Error(err)
		}
		if _, err := b.Resolve(t.Context(), "api"); !fault.Is(err, fault.NotFound) {
			t.Errorf("it is set though nothing was committed: %v", err)
		}
		if err := set("kept-value-0003", nil); err != nil {
			t.Error(err)
		}
		if got := b.hide.String("tried-first-0001 undone-value-0002 kept-value-0003"); strings.Contains(got, "000") {
			t.Errorf("shown is %s", got)
		}
		remove := func(end error) error {
			return d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
				if _, err := b.RemoveTx(ctx, tx, "api", ByOperator); err != nil {
					return err
				}
				return end
			})
		}
		if err := remove(undone); !fault.Is(err, fault.Conflict) {
			t.Error(err)
		}
		if v, err := b.Resolve(t.Context(), "api"); err != nil || v.Reveal() != "kept-value-0003" {
			t.Errorf("it is gone though nothing was committed: %v", err)
		}
		if err := remove(nil); err != nil {
			t.Error(err)
		}
		if _, err := b.Resolve(t.Context(), "api"); !fault.Is(err, fault.NotFound) {
			t.Errorf("it is there: %v", err)
		}
	})
}

func TestOnlyTheOperatorChangesSecrets(t *testing.T) {
	t.Parallel()
	b, ctx := setup(t, dbtest.SQLite(t)), t.Context()
	b.set(t, "api", value1)
	for _, by := range []string{"", "agent:main", "Operator", "kernel", "adapter:x"} {
		if _, err := b.Set(ctx, Setting{Name: "api", Value: []byte(value2)}, by); !fault.Is(err, fault.Denied) {
			t.Errorf("set by %q: %v", by, err)
		}
		if _, err := b.Remove(ctx, "api", by); !fault.Is(err, fault.Denied) {
			t.Errorf("removed by %q: %v", by, err)
		}
	}
	b.told(t, "api", KindSet)
}

func TestWhatCannotBeASecretIsRefusedAndNotRepeated(t *testing.T) {
	t.Parallel()
	b, ctx := setup(t, dbtest.SQLite(t)), t.Context()
	const loud = "VERY-secret=value"
	for why, n := range map[string]Setting{
		"name":  {Name: loud, Value: []byte(value1)},
		"empty": {Name: "a", Value: []byte(" \n")},
		"long":  {Name: "a", Value: bytes.Repeat([]byte("x"), MaxValue+1)},
		"host":  {Name: "a", Value: []byte(loud), Hosts: []string{"https://api.example.com/x"}},
		"hosts": {Name: "a", Value: []byte(loud), Hosts: make([]string, maxHosts+1)},
	} {
		_, err := b.Set(ctx, n, ByOperator)
		if !fault.Is(err, fault.Invalid) || strings.Contains(fmt.Sprint(err, fault.HintOf(err)), loud) {
			t.Errorf("%s: %v, hint %q", why, err, fault.HintOf(err))
		}
	}
	for name, good := range map[string]bool{
		"a": true, "github-token": true, "a.b_c-9": true, strings.Repeat("a", 64): true,
		"": false, "A": false, "9a": false, "a--b": false, "a-": false, "a b": false, "a\x00": false, "ä": false, strings.Repeat("a", 65): false, "a/b": false, "*": false,
	} {
		if err := CheckName(name); (err == nil) != good {
			t.Errorf("name %q: %v", name, err)
		}
	}
	if err := CheckName("GITHUB"); !strings.Contains(fault.HintOf(err), "small letters") {
		t.Errorf("hint %q", fault.HintOf(err))
	}
}

func TestADamagedRowIsNamedAndCanBeReplaced(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b, ctx := setup(t, d), t.Context()
		b.set(t, "good", value1)
		for _, name := range []string{"moved", "older", "removed"} {
			b.set(t, name, value2)
		}
		b.set(t, "older", value1)
		err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE secrets SET body = (SELECT s.body FROM secrets s WHERE s.name = 'good') WHERE name IN ('moved', 'removed')")
			if err == nil {
				_, err = tx.Exec(ctx, "UPDATE secrets SET version = 1 WHERE name = 'older'")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		b.again()
		err = b.Load(ctx)
		for _, name := range []string{"moved", "older", "removed"} {
			if !strings.Contains(fmt.Sprint(err), name) {
				t.Errorf("loading does not name %s: %v", name, err)
			}
			if _, err := b.Resolve(ctx, name); !fault.Is(err, fault.Verification) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if b.hide.Find([]byte(value1)) != "good" {
			t.Error("the good one is not known")
		}
		if list, err := b.List(ctx); err != nil || len(list) != 4 {
			t.Errorf("%+v, %v", list, err)
		}
		b.set(t, "moved", value2)
		if v, err := b.Resolve(ctx, "moved"); err != nil || v.Reveal() != value2 {
			t.Errorf("replaced: %v", err)
		}
		if _, err := b.Remove(ctx, "removed", ByOperator); err != nil {
			t.Errorf("removed: %v", err)
		}
	})
}

func TestAValueHidesItself(t *testing.T) {
	t.Parallel()
	v := Value{name: "api", text: value1, hosts: []string{"a.example.com"}}
	raw, err := json.Marshal(map[string]any{"v": v, "p": &v})
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v, "in", struct{ V Value }{v})
	all := fmt.Sprintf("%v %+v %#v %s %q %x %d %v %s", v, v, v, v, v, v, v, &v, []Value{v}) + string(raw) + log.String() + fmt.Sprintln(v, &v)
	if err != nil || strings.Contains(all, value1) || strings.Contains(all, fmt.Sprintf("%x", value1)) {
		t.Errorf("%s, %v", all, err)
	}
}

func TestABoundSecretGoesToItsHostsOnly(t *testing.T) {
	t.Parallel()
	bound := Value{name: "k", hosts: []string{"api.example.com", "*.corp.example", "localhost:8080", "127.0.0.1", "only.example:8443"}}
	for raw, good := range map[string]bool{
		"https://api.example.com/x": true, "https://API.example.com:8443/": true, "https://a.b.corp.example/": true, "http://localhost:8080/": true,
		"http://127.0.0.1:99/": true, "https://only.example:8443/": true,
		"http://api.example.com/": false, "https://api.example.com.evil.example/": false, "https://evil.example/api.example.com": false,
		"https://corp.example/": false, "https://xcorp.example/": false, "http://localhost/": false, "https://localhost:8081/": false,
		"https://only.example/": false, "https://api.example.com@evil.example/": false, "https://api.example.com./": false, "https://[::1]/": false,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if err := bound.For(u); (err == nil) != good || err != nil && !fault.Is(err, fault.Denied) {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if u, _ := url.Parse("http://x.example/"); (Value{}).For(u) != nil {
		t.Error("a secret that is not bound has hosts")
	}
	for host, good := range map[string]bool{
		"api.example.com": true, "*.example.com": true, "localhost:8080": true, "127.0.0.1": true, "[::1]:80": true, "::1": true,
		"": false, "*": false, "https://x": false, "x/y": false, "X.example": false, "x:0": false, "x:y": false, "a..b": false, "*.": false, "a b": false,
	} {
		if _, err := checkHosts([]string{host}); (err == nil) != good {
			t.Errorf("host %q: %v", host, err)
		}
	}
}

func TestReferencesInText(t *testing.T) {
	t.Parallel()
	text, err := ParseText("Bearer {{secret:api}}, {{other}} {{secret:b}}{{secret:api}}")
	if err != nil || !slices.Equal(text.Names(), []string{"api", "b"}) {
		t.Fatalf("%v, %v", text.Names(), err)
	}
	got, err := text.Fill(func(name string) (Value, error) { return Value{text: "<" + name + ">"}, nil })
	if err != nil || got != "Bearer <api>, {{other}} <b><api>" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := text.Fill(func(string) (Value, error) { return Value{}, errors.New("none") }); err == nil {
		t.Error("a value that is missing is filled in")
	}
	for _, bad := range []string{"{{secret:", "{{secret:a", "{{secret:}}", "{{secret:A B}}", "x {{secret:a}} {{secret:b}"} {
		if _, err := ParseText(bad); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for ref, want := range map[string]string{"secret:a-b": "a-b", "a": "", "Secret:a": ""} {
		if name, is, err := ParseRef(ref); name != want || is != (want != "") || err != nil {
			t.Errorf("%q: %q, %v, %v", ref, name, is, err)
		}
	}
	if _, is, err := ParseRef("secret:sk-LIVE 1"); !is || !fault.Is(err, fault.Invalid) || strings.Contains(err.Error(), "sk-LIVE") {
		t.Errorf("%v, %v", is, err)
	}
}

func FuzzParseText(f *testing.F) {
	f.Add("Bearer {{secret:api}}")
	f.Add("{{secret:a}}{{secret:")
	f.Fuzz(func(t *testing.T, s string) {
		text, err := ParseText(s)
		if err != nil {
			return
		}
		back, err := text.Fill(func(name string) (Value, error) {
			if CheckName(name) != nil {
				t.Fatalf("%q is a name", name)
			}
			return Value{text: open + name + shut}, nil
		})
		if err != nil || back != s {
			t.Fatalf("%q became %q, %v", s, back, err)
		}
	})
}

// TestSecretsAreAsAMap holds the secrets of both stores against a map, through
// restarts.
func TestSecretsAreAsAMap(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := setup(t, dbtest.Open(t, dbtest.Options(t, kind)))
			rapid.Check(t, func(rt *rapid.T) {
				want := map[string]string{}
				list, err := b.List(t.Context())
				for _, i := range list {
					v, err := b.Resolve(t.Context(), i.Name)
					if err != nil {
						rt.Fatal(err)
					}
					want[i.Name] = v.Reveal()
				}
				if err != nil {
					rt.Fatal(err)
				}
				name := rapid.SampledFrom([]string{"a", "b", "c"})
				rt.Repeat(map[string]func(*rapid.T){
					"set": func(rt *rapid.T) {
						n, v := name.Draw(rt, "name"), rapid.StringMatching(`[a-zA-Z0-9]{8,20}`).Draw(rt, "value")
						b.set(t, n, v)
						want[n] = v
					},
					"remove": func(rt *rapid.T) {
						n := name.Draw(rt, "name")
						_, there := want[n]
						if _, err := b.Remove(t.Context(), n, ByOperator); (err == nil) != there || err != nil && !fault.Is(err, fault.NotFound) {
							rt.Fatal(err)
						}
						delete(want, n)
					},
					"restart": func(rt *rapid.T) {
						err := b.Flush(t.Context())
						b.again()
						if err := errors.Join(err, b.Load(t.Context())); err != nil {
							rt.Fatal(err)
						}
					},
					"": func(rt *rapid.T) {
						list, err := b.List(t.Context())
						if err != nil || len(list) != len(want) {
							rt.Fatalf("%v, want %d, %v", list, len(want), err)
						}
						for n, v := range want {
							got, err := b.Resolve(t.Context(), n)
							if err != nil || got.Reveal() != v || b.hide.Find([]byte(v)) == "" {
								rt.Fatalf("%s: %v", n, err)
							}
						}
					},
				})
			})
		})
	}
}

// Two that set the same secret at the same time are one after the other, or one is
// told of the conflict.
func TestTwoSettersAtATime(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		done := make(chan int)
		for i := range 4 {
			go func() {
				good := 0
				for n := range 10 {
					_, err := b.Set(ctx, Setting{Name: "same", Value: fmt.Appendf(nil, "value-%d-%d", i, n)}, ByOperator)
					if err == nil {
						good++
					} else if !fault.Is(err, fault.Conflict) {
						t.Error(err)
					}
				}
				done <- good
			}()
		}
		sum := 0
		for range 4 {
			sum += <-done
		}
		list, err := b.List(ctx)
		if err != nil || len(list) != 1 || list[0].Version != int64(sum) {
			t.Errorf("%d were acknowledged: %+v, %v", sum, list, err)
		}
	})
}

func TestAHostThatIsRefusedIsShownInWholeCharacters(t *testing.T) {
	t.Parallel()
	for lead := range 4 {
		_, err := checkHosts([]string{strings.Repeat("a", lead) + strings.Repeat("é€", 40)})
		if err == nil || strings.Contains(err.Error(), `\x`) {
			t.Errorf("%v", err)
		}
	}
}
