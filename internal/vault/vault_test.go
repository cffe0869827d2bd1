package vault

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/fault"
)

func setup(t testing.TB) *Vault {
	t.Helper()
	master := make([]byte, KeySize)
	if _, err := rand.Read(master); err != nil {
		t.Fatal(err)
	}
	v, err := New(master)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func fieldsOf(k kind) []Field {
	var out []Field
	for f, info := range fields {
		if info.kind == k {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return out
}

func TestSealedOpensOnlyUnchangedInItsPlace(t *testing.T) {
	t.Parallel()
	v, stranger := setup(t), setup(t)
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.SampledFrom(fieldsOf(sealed)).Draw(t, "field")
		row := rapid.StringN(1, 40, -1).Draw(t, "row")
		plain := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "plain")
		value := v.Seal(field, row, plain)
		if len(value) != len(plain)+Overhead {
			t.Fatalf("%d bytes sealed are %d", len(plain), len(value))
		}
		got, err := v.Open(field, row, value)
		if err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("open: %x, %v; want %x", got, err, plain)
		}

		refuse := func(what string, v *Vault, f Field, row string, value []byte) {
			t.Helper()
			if got, err := v.Open(f, row, value); !fault.Is(err, fault.Verification) || got != nil {
				t.Fatalf("%s: %x, %v", what, got, err)
			}
		}
		other := rapid.SampledFrom(fieldsOf(sealed)).Filter(func(f Field) bool { return f != field }).Draw(t, "other field")
		refuse("another field", v, other, row, value)
		refuse("another row", v, field, row+"x", value)
		refuse("no row", v, field, "", value)
		refuse("another key", stranger, field, row, value)
		flipped := slices.Clone(value)
		flipped[rapid.IntRange(0, len(value)-1).Draw(t, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		refuse("a flipped bit", v, field, row, flipped)
		refuse("a cut value", v, field, row, value[:rapid.IntRange(0, len(value)-1).Draw(t, "cut")])
	})
}

func TestSealedIsNeverEqualTwice(t *testing.T) {
	t.Parallel()
	v := setup(t)
	var mu sync.Mutex
	var wg sync.WaitGroup
	seen := map[string]bool{}
	for range 8 {
		wg.Go(func() {
			for range 500 {
				value := v.Seal(MemoryText, "mem_1", []byte("the same"))
				mu.Lock()
				if seen[string(value)] {
					t.Error("sealed twice to the same bytes")
				}
				seen[string(value)] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestFieldNumbersNeverChange(t *testing.T) {
	t.Parallel()
	// What stores out there hold. Append; a changed line makes them unreadable.
	want := `1 event.data event 1
2 event.salt event 1
3 step.input run 1
4 step.result run 1
5 step.error run 1
6 message.text conversation 1
7 blob.piece blob 1
8 memory.text memory 1
9 outbox.body conversation 1
10 approval.input approval 1
11 approval.summary approval 1
12 run.input run 1
13 run.result run 1
14 inbound.body conversation 1
15 history.text conversation 1
16 conversation.title conversation 1
17 conversation.address conversation 1
18 conversation.summary conversation 1
19 run.error run 1
20 timer.payload run 1
21 blocked.error event 1
22 dead_letter.error event 1
23 approval.details approval 1
24 approval.note approval 1
25 outbox.error conversation 1
26 outbox.ref conversation 1
27 memory.label memory 1
100 inbound.dedupe conversation 2
101 conversation.key conversation 2
102 outbox.recipient conversation 2
103 memory.key memory 2
104 memory.slot memory 2
`
	names := map[string]bool{}
	for line := range strings.Lines(want) {
		var f Field
		if _, err := fmt.Sscan(line, &f); err != nil {
			t.Fatal(err)
		}
		info := fields[f]
		if got := fmt.Sprintf("%d %s %s %d\n", f, info.name, info.domain, info.kind); got != line {
			t.Errorf("field is %q, stores have %q", got, line)
		}
	}
	for f, info := range fields {
		if f == 0 || names[info.name] || info.domain == "" || info.kind == 0 || f.String() != info.name {
			t.Errorf("%d %+v: number zero, name taken, or incomplete", f, info)
		}
		names[info.name] = true
	}
}

func TestBlindComparesWithoutSurroundingSpace(t *testing.T) {
	t.Parallel()
	v, stranger := setup(t), setup(t)
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(fieldsOf(blind)).Draw(t, "field")
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		same := strings.TrimSpace(a) == strings.TrimSpace(b)
		if bytes.Equal(v.Blind(f, a), v.Blind(f, b)) != same {
			t.Fatalf("%q and %q: equal blind values should be %v", a, b, same)
		}
		if !bytes.Equal(v.Blind(f, a), v.Blind(f, " "+a+"\n")) {
			t.Fatalf("%q: white space around it matters", a)
		}
		if bytes.Equal(v.Blind(f, a), stranger.Blind(f, a)) {
			t.Fatalf("%q: the same under another key", a)
		}
	})
	if bytes.Equal(v.Blind(InboundDedupe, "x"), v.Blind(MemoryKey, "x")) {
		t.Error("two fields blind alike")
	}
	if bytes.Equal(v.Blind(InboundDedupe, "x"), v.Blind(InboundDedupe, "X")) {
		t.Error("case is lost")
	}
}

func TestMACTellsPartsAndDomainsApart(t *testing.T) {
	t.Parallel()
	v := setup(t)
	b := func(s string) []byte { return []byte(s) }
	all := [][]byte{
		v.MAC("a", b("xy")), v.MAC("a", b("x"), b("y")), v.MAC("a", b("xy"), nil), v.MAC("a"), v.MAC("b", b("xy")), v.Digest("a").Sum(nil),
	}
	for i := range all {
		for j := range i {
			if bytes.Equal(all[i], all[j]) && !(i == 5 && j == 3) { // nothing at all is the same for both
				t.Errorf("MAC %d equals MAC %d", i, j)
			}
		}
	}
	d := v.Digest("blob")
	d.Write(b("ab"))
	d.Write(b("c"))
	e := v.Digest("blob")
	e.Write(b("abc"))
	if !bytes.Equal(d.Sum(nil), e.Sum(nil)) {
		t.Error("a digest depends on how the stream was cut")
	}
}

func TestWrongUsePanics(t *testing.T) {
	t.Parallel()
	v := setup(t)
	for name, use := range map[string]func(){
		"seal a blind field":    func() { v.Seal(InboundDedupe, "x", nil) },
		"seal an unknown field": func() { v.Seal(9999, "x", nil) },
		"seal without a row":    func() { v.Seal(EventData, "", nil) },
		"open a blind field":    func() { _, _ = v.Open(InboundDedupe, "x", nil) },
		"blind a sealed field":  func() { v.Blind(EventData, "x") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("it went through")
				}
			}()
			use()
		})
	}
}

func TestSameMasterSameKeys(t *testing.T) {
	t.Parallel()
	master := bytes.Repeat([]byte{7}, KeySize)
	a, _ := New(master)
	b, _ := New(master)
	got, err := b.Open(EventData, "evt_1", a.Seal(EventData, "evt_1", []byte("x")))
	if err != nil || string(got) != "x" {
		t.Errorf("%q, %v", got, err)
	}
	if !a.SigningKey().Equal(b.SigningKey()) || !bytes.Equal(a.AuditKey(), b.AuditKey()) {
		t.Error("derived keys differ")
	}
	// Pinned: a changed derivation would lock every store out.
	if fp := a.Keys().Fingerprint(); fp != "ce203205213f5268" {
		t.Errorf("fingerprint %s", fp)
	}
	for _, n := range []int{0, 31, 33} {
		if _, err := New(make([]byte, n)); !fault.Is(err, fault.Config) {
			t.Errorf("a master key of %d bytes: %v", n, err)
		}
	}
}

func TestPublicKeyAloneVerifies(t *testing.T) {
	t.Parallel()
	v := setup(t)
	msg := []byte("checkpoint")
	sig := ed25519.Sign(v.SigningKey(), msg)
	keys, err := ParsePublicKey(" " + v.Keys().PublicString() + "\n")
	if err != nil || keys.Audit != nil {
		t.Fatalf("%v, audit key %x", err, keys.Audit)
	}
	if err := keys.Verify(msg, sig); err != nil {
		t.Error(err)
	}
	sig[0] ^= 1
	if err := keys.Verify(msg, sig); !fault.Is(err, fault.Verification) {
		t.Errorf("changed signature: %v", err)
	}
	if err := (Keys{}).Verify(msg, sig); !fault.Is(err, fault.Verification) {
		t.Errorf("no key: %v", err)
	}
	for _, s := range []string{"", publicPrefix, publicPrefix + "AAAA", strings.TrimPrefix(v.Keys().PublicString(), publicPrefix), v.Keys().PublicString() + "A"} {
		if _, err := ParsePublicKey(s); !fault.Is(err, fault.Invalid) {
			t.Errorf("ParsePublicKey(%q): %v", s, err)
		}
	}
}

func TestNoKeyIsPrinted(t *testing.T) {
	t.Parallel()
	v := setup(t)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("opened", "vault", v, "keys", v.Keys())
	text := log.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		text += fmt.Sprintf(verb, v) + fmt.Sprintf(verb, v.Keys())
	}
	for _, secret := range [][]byte{v.prk, v.audit, v.signing.Seed()} {
		for _, form := range []string{string(secret), fmt.Sprintf("%x", secret), fmt.Sprintf("%v", secret)} {
			if strings.Contains(text, form) {
				t.Errorf("a key shows in %s", text)
			}
		}
	}
	if !strings.Contains(text, v.Keys().Fingerprint()) {
		t.Errorf("no fingerprint in %s", text)
	}
}

func BenchmarkSeal1KiB(b *testing.B) {
	v, plain := setup(b), make([]byte, 1024)
	b.SetBytes(int64(len(plain)))
	b.ReportAllocs()
	for b.Loop() {
		v.Seal(EventData, "evt_0197a3c05b0c7d3e9a4be2f0c1d2e3f4", plain)
	}
}

// A MAC's state is used again: what one left behind must not reach another.
func TestMACsOfManyCallersAreThoseOfOne(t *testing.T) {
	t.Parallel()
	v := setup(t)
	want := map[int][]byte{}
	for i := range 16 {
		want[i] = v.MAC(fmt.Sprint("domain", i%3), []byte(strings.Repeat("x", i)))
	}
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for n := range 400 {
				i := n % 16
				if got := v.MAC(fmt.Sprint("domain", i%3), []byte(strings.Repeat("x", i))); !bytes.Equal(got, want[i]) {
					t.Errorf("%d: another MAC", i)
					return
				}
			}
		})
	}
	callers.Wait()
}

func BenchmarkMAC(b *testing.B) {
	v, part := setup(b), make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		v.MAC("bench", part)
	}
}

func BenchmarkOpen1KiB(b *testing.B) {
	v := setup(b)
	value := v.Seal(EventData, "evt_0197a3c05b0c7d3e9a4be2f0c1d2e3f4", make([]byte, 1024))
	b.SetBytes(1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Open(EventData, "evt_0197a3c05b0c7d3e9a4be2f0c1d2e3f4", value); err != nil {
			b.Fatal(err)
		}
	}
}
