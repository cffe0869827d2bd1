package audit

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func anyRecord(t *rapid.T) record {
	text := rapid.OneOf(rapid.StringMatching(`[a-z:./_ 0-9…-]{0,12}`), rapid.String())
	return record{
		Chain: text.Draw(t, "chain"), Seq: rapid.Int64().Draw(t, "seq"), At: rapid.Int64().Draw(t, "at"), Kind: text.Draw(t, "kind"),
		Actor: text.Draw(t, "actor"), Subject: text.Draw(t, "subject"), Tool: text.Draw(t, "tool"),
		Scopes: rapid.SliceOfN(text, 0, 3).Draw(t, "scopes"), ScopeMAC: text.Draw(t, "scope_mac"), InputMAC: text.Draw(t, "input_mac"),
		Outcome: text.Draw(t, "outcome"), Reason: text.Draw(t, "reason"), DurationUS: rapid.Int64().Draw(t, "duration"),
		CostMicroUSD: rapid.Int64().Draw(t, "cost"), Count: rapid.Int64Range(-1, 2).Draw(t, "count"), Run: text.Draw(t, "run"), Step: text.Draw(t, "step"),
	}
}

// checkScan holds scanRecord against the slow reader: it may know less, never more.
func checkScan(t interface{ Fatalf(string, ...any) }, text string) (fast bool) {
	p, ok := scanRecord(text)
	if !ok {
		return false
	}
	var rec record
	if err := strict(text, &rec); err != nil {
		t.Fatalf("%q is accepted though %v", text, err)
	}
	if p != (spot{rec.Chain, rec.Seq, rec.At}) {
		t.Fatalf("%q is read as %+v", text, p)
	}
	return true
}

func TestScannedEntriesAreCanonicalAndReadAlike(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text, err := canonical(anyRecord(t))
		if err != nil {
			t.Fatal(err)
		}
		checkScan(t, text)
		cut := []byte(text)
		at := rapid.IntRange(0, len(cut)-1).Draw(t, "place")
		switch rapid.IntRange(0, 2).Draw(t, "change") {
		case 0:
			cut[at] = rapid.SampledFrom([]byte(`{}[]",:0-+ \ea`)).Draw(t, "byte")
		case 1:
			cut = append(cut[:at:at], cut[at+1:]...)
		case 2:
			cut = append(cut[:at:at], append([]byte(rapid.SampledFrom([]string{" ", "0", `""`, "-"}).Draw(t, "text")), cut[at:]...)...)
		}
		checkScan(t, string(cut))
	})
}

func FuzzScanRecord(f *testing.F) {
	for _, r := range []record{{}, {Chain: "aud_1", Seq: 1, Kind: "call", Scopes: []string{"a", "b:…"}, Count: 2, Step: "tool/0"}} {
		text, err := canonical(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { checkScan(t, text) })
}

func TestUsualEntriesAreScanned(t *testing.T) {
	t.Parallel()
	text, err := canonical(record{
		Chain: "aud_1", Seq: 7, At: 9, Kind: "call", Actor: "operator", Subject: "agent:main", Tool: "fs.write", Scopes: []string{redact("fs.write:/x"), redact("fs.list")},
		ScopeMAC: "00", InputMAC: "ff", Outcome: "ok", DurationUS: 5, Run: "run_1", Step: "tool/1",
	})
	if err != nil || !checkScan(t, text) {
		t.Errorf("%s takes the slow way (%v)", text, err)
	}
}

func TestSummerMakesTheLinksOfAChain(t *testing.T) {
	t.Parallel()
	for _, key := range [][]byte{nil, []byte("k")} {
		s, slow, fast := newSummer(key), genesis(), genesis()
		for _, text := range []string{"a", "", strings.Repeat("b", 1000), "c"} {
			slow = slow.next(text, key)
			got := s.next(fast, text)
			if got.seq != slow.seq || !bytes.Equal(got.hash, slow.hash) || !bytes.Equal(got.mac, slow.mac) {
				t.Fatalf("%q: %+v, want %+v", text, got, slow)
			}
			fast = link{seq: got.seq, hash: bytes.Clone(got.hash), mac: bytes.Clone(got.mac)}
		}
	}
}
