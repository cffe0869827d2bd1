package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/fault"
)

const token = `s3cr3t/To+ken=with "all" of&it%41\x`

// spellings are the ways a value is written, made by encoders of others.
func spellings(v string) map[string]string {
	quoted := asJSON(v)
	twice := asJSON(quoted)
	out := map[string]string{
		"raw": v, "query": url.QueryEscape(v), "path": url.PathEscape(v), "small query": lowerHex(url.QueryEscape(v)),
		"json": quoted, "json twice": twice,
		"url in json": strings.ReplaceAll(url.PathEscape(v), "/", `\/`), "hex": hex.EncodeToString([]byte(v)),
		"HEX": strings.ToUpper(hex.EncodeToString([]byte(v))), "colons": strings.TrimSuffix(separated(v, ":"), ":"),
		"url twice": url.QueryEscape(url.QueryEscape(v)),
	}
	var all, slash strings.Builder
	for _, b := range []byte(v) {
		fmt.Fprintf(&all, "%%%02x", b)
		fmt.Fprintf(&slash, `\x%02X`, b)
	}
	out["all percent"], out["all x"] = all.String(), slash.String()
	for before := range 3 {
		for _, after := range []string{"", "!", "!!"} {
			text := []byte("abc"[:before] + v + after)
			for name, enc := range map[string]*base64.Encoding{
				"std": base64.StdEncoding, "rawstd": base64.RawStdEncoding, "url": base64.URLEncoding, "rawurl": base64.RawURLEncoding,
			} {
				plain := enc.EncodeToString(text)
				out[fmt.Sprintf("base64 %s %d%s", name, before, after)] = plain
				out[fmt.Sprintf("base64 %s %d%s wrapped", name, before, after)] = wrapped(plain, "\n")
				out[fmt.Sprintf("base64 %s %d%s in a query", name, before, after)] = url.QueryEscape(plain)
				out[fmt.Sprintf("base64 %s %d%s wrapped in json", name, before, after)] = wrapped(plain, `\r\n`)
			}
		}
	}
	return out
}

// asJSON is a text as it stands between the quotes.
func asJSON(s string) string {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(raw[1 : len(raw)-1])
}

func lowerHex(s string) string {
	out := []byte(s)
	for i := range out {
		if out[i] == '%' {
			copy(out[i:i+3], bytes.ToLower(out[i:i+3]))
		}
	}
	return string(out)
}

func separated(v, sep string) string {
	var b strings.Builder
	for _, c := range []byte(v) {
		fmt.Fprintf(&b, "%02x%s", c, sep)
	}
	return b.String()
}

func wrapped(s, end string) string {
	var b strings.Builder
	for len(s) > 10 {
		b.WriteString(s[:10] + end)
		s = s[10:]
	}
	return b.String() + s
}

// left is whether anything of a spelling that is longer than its ends is left.
func left(text, spelling string) bool {
	const ends = 6 // characters of base64 that a value shares with its neighbours, and padding
	if len(spelling) > 2*ends+MinLen {
		spelling = spelling[ends : len(spelling)-ends]
	}
	return strings.Contains(text, spelling)
}

func TestEverySpellingIsFound(t *testing.T) {
	t.Parallel()
	r := New()
	r.Register("other", []byte("another-value-1"))
	r.Register("tok", []byte(token))
	for name, s := range spellings(token) {
		text := "before <" + s + "> behind"
		got := r.String(text)
		if left(got, s) || !strings.HasPrefix(got, "before <") || !strings.HasSuffix(got, "> behind") || !strings.Contains(got, "[secret:tok]") {
			t.Errorf("%s: %s became %s", name, text, got)
		}
		raw, err := json.Marshal(map[string]any{"k": text, "n": 5, "list": []string{"ok", s}})
		if err != nil {
			t.Fatal(err)
		}
		clean := r.JSON(raw)
		var back struct {
			K    string
			N    int
			List []string
		}
		if err := json.Unmarshal(clean, &back); err != nil || left(back.K, s) || left(back.List[1], s) || back.List[0] != "ok" || back.N != 5 {
			t.Errorf("%s as JSON: %s, %v", name, clean, err)
		}
	}
}

func TestShortAndBlankValuesAreNotLookedFor(t *testing.T) {
	t.Parallel()
	r := New()
	if r.Register("short", []byte("1234567")) || r.Register("blank", []byte(" \n\t       ")) || r.Register("none", nil) {
		t.Error("registered")
	}
	if !r.Register("eight", []byte(" 12345678\n")) {
		t.Error("eight bytes are not registered")
	}
	if got := r.String("1234567 12345678"); got != "1234567 [secret:eight]" {
		t.Error(got)
	}
	var none *Redactor
	if none.Register("x", []byte(token)) || none.String(token) != token || string(none.JSON([]byte(token))) != token || !errors.Is(none.Error(io.EOF), io.EOF) {
		t.Error("a nil Redactor knows something")
	}
}

func TestLongestWinsAndNeighboursStaySeparate(t *testing.T) {
	t.Parallel()
	r := New()
	r.Register("part", []byte("abcdefgh"))
	r.Register("whole", []byte("abcdefgh-ijklmnop"))
	r.Register("tail", []byte("mnopqrst"))
	for text, want := range map[string]string{
		"x abcdefgh-ijklmnop y":     "x [secret:whole] y",
		"x abcdefgh-ij y":           "x [secret:part]-ij y",
		"abcdefghabcdefgh":          "[secret:part][secret:part]",
		"abcdefgh-ijklmnopqrst end": "[secret:whole] end",
		"nothing of it":             "nothing of it",
	} {
		if got := r.String(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestLinesAndStringsOfAValueAreFoundAlone(t *testing.T) {
	t.Parallel()
	const line1, line2 = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7", "VJTUt9Us8cKjMzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDu"
	pem := "-----BEGIN PRIVATE KEY-----\n" + line1 + "\n" + line2 + "\n-----END PRIVATE KEY-----\n"
	r := New()
	r.Register("pem", []byte(pem))
	account := []byte(`{"type":"service_account","private_key":"` + asJSON(pem) + `","private_key_id":"0123456789abcdef0123"}`)
	r.Register("account", account)
	for _, text := range []string{
		"  > " + line1 + "\n  > " + line2, "key 0123456789abcdef0123", base64.StdEncoding.EncodeToString([]byte(pem)), string(account), pem,
		strings.ReplaceAll(pem, "\n", "\r\n"),
	} {
		got := r.String(text)
		for _, part := range []string{line1[:20], line1[25:45], line2[:20], "0123456789abcdef"} {
			if strings.Contains(got, part) || strings.Contains(got, base64.StdEncoding.EncodeToString([]byte(part))[4:20]) {
				t.Errorf("%q is left in %q", part, got)
			}
		}
	}
	if got := r.String("-----BEGIN PRIVATE KEY-----"); strings.Contains(got, "secret:") {
		t.Error("an ordinary line is hidden")
	}
}

func TestJSONKeepsItsShape(t *testing.T) {
	t.Parallel()
	r := New()
	r.Register("pin", []byte("12345678"))
	r.Register("k", []byte("sekret-value"))
	for raw, want := range map[string]string{
		`{"a":12345678,"b":[123456789,1],"c":true}`:    `{"a":null,"b":[null,1],"c":true}`,
		`{"sekret-value":"x sekret-value"}`:            `{"[secret:k]":"x [secret:k]"}`,
		`{"a":"\u0073ekret-value \"<&>\""}`:            `{"a":"[secret:k] \"<&>\""}`,
		`{"a" : "\u00e9 stays", "b":"long enough \n"}`: `{"a" : "\u00e9 stays", "b":"long enough \n"}`,
		`no JSON "sekret-value`:                        `no JSON "[secret:k]`,
		`"ends in \`:                                   `"ends in \`,
	} {
		if got := r.JSON([]byte(raw)); string(got) != want {
			t.Errorf("%s became %s", raw, got)
		}
	}
}

func TestErrorsKeepTheirClass(t *testing.T) {
	t.Parallel()
	r := New()
	r.Register("k", []byte("sekret-value"))
	err := fmt.Errorf("outer: %w", fault.New(fault.Denied, "no to sekret-value").WithHint("try sekret%%2Dvalue"))
	got := r.Error(err)
	if !fault.Is(got, fault.Denied) || got.Error() != "outer: no to [secret:k]" || fault.HintOf(got) != "try [secret:k]" {
		t.Errorf("%v, hint %q", got, fault.HintOf(got))
	}
	for e := got; e != nil; e = errors.Unwrap(e) {
		if strings.Contains(e.Error(), "sekret-value") {
			t.Error("a cause has it")
		}
	}
	if plain := fault.New(fault.Denied, "no"); !errors.Is(r.Error(plain), plain) {
		t.Error("an error without a value is another one")
	}
}

func TestLogsHoldNoValue(t *testing.T) {
	t.Parallel()
	type odd struct{ Inner []string }
	for _, format := range []string{"json", "text"} {
		var buf bytes.Buffer
		var h slog.Handler = slog.NewJSONHandler(&buf, nil)
		if format == "text" {
			h = slog.NewTextHandler(&buf, nil)
		}
		r := New()
		log := slog.New(r.Handler(h))
		r.Register("k", []byte(`sekret "value"`))
		const v = `sekret "value"`
		log.With("a", v).WithGroup("g").Info("message "+v, "b", url.QueryEscape(v), "err", fmt.Errorf("x: %w", errors.New(v)), "bytes", []byte(v),
			"odd", odd{[]string{v}}, "ptr", &odd{[]string{v}}, "map", map[string]string{v: "x"}, slog.Group("h", "c", v), "raw", json.RawMessage(`["sekret \"value\""]`),
			"n", 5, "valuer", valuer(v))
		for name, s := range spellings(v) {
			if left(buf.String(), s) {
				t.Errorf("%s: %s is left in %s", format, name, buf.String())
			}
		}
		if !strings.Contains(buf.String(), "[secret:k]") || !strings.Contains(buf.String(), "5") {
			t.Error(buf.String())
		}
	}
}

type valuer string

func (v valuer) LogValue() slog.Value { return slog.StringValue(string(v)) }

// drawValue is a value of at least MinLen bytes with what escapes are about.
func drawValue(t *rapid.T, label string) string {
	return rapid.StringOfN(rapid.RuneFrom([]rune(`aB3/+=% "\&<é€😀-_Z`)), 8, 24, -1).
		Filter(func(s string) bool { return len(strings.TrimSpace(s)) >= MinLen && strings.TrimSpace(s) == s }).Draw(t, label)
}

func TestNoRegisteredSpellingSurvives(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		var text strings.Builder
		var put []string
		for i := range rapid.IntRange(1, 4).Draw(t, "values") {
			v := drawValue(t, "value")
			r.Register(fmt.Sprint("v", i), []byte(v))
			all := spellings(v)
			s := all[rapid.SampledFrom(slices.Sorted(maps.Keys(all))).Draw(t, "spelling")]
			put = append(put, s)
			text.WriteString(rapid.StringOf(rapid.RuneFrom([]rune("xyz .,\n"))).Draw(t, "between") + "|" + s + "|")
		}
		got := r.String(text.String())
		for _, s := range put {
			if left(got, s) {
				t.Fatalf("%q is left in %q of %q", s, got, text.String())
			}
		}
		if again := r.String(got); again != got {
			t.Fatalf("a second time: %q", again)
		}
	})
}

func TestTextWithoutValuesIsUnchanged(t *testing.T) {
	t.Parallel()
	r := New()
	r.Register("a", []byte("QQQQ-QQQQ")) // none of its spellings can be made of what follows
	r.Register("b", []byte("Q Q Q Q Q"))
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.SampledFrom([]byte("abc019 %\\ux+/=\"\n\r{}:\xff\xc3\xa9"))).Draw(t, "text")
		if got := r.Bytes(text); !bytes.Equal(got, text) {
			t.Fatalf("%q became %q", text, got)
		}
		if out := inPieces(r, text, func([]byte) int { return 1 }); !bytes.Equal(out, text) {
			t.Fatalf("%q became %q in a stream", text, out)
		}
		if json.Valid(text) && !bytes.Equal(r.JSON(text), text) {
			t.Fatalf("%q became %q as JSON", text, r.JSON(text))
		}
	})
}

// drawText is made of whole and broken spellings of values, and of what escapes are
// made of.
func drawText(t *rapid.T, values []string) []byte {
	var out []byte
	for range rapid.IntRange(0, 12).Draw(t, "parts") {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			out = append(out, rapid.StringOfN(rapid.RuneFrom([]rune("%\\ux0041def+ \r\n:=é😀")), 0, 6, -1).Draw(t, "odd")...)
		case 1:
			out = append(out, rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "bytes")...)
		default:
			all := spellings(rapid.SampledFrom(values).Draw(t, "value"))
			s := all[rapid.SampledFrom(slices.Sorted(maps.Keys(all))).Draw(t, "spelling")]
			from := rapid.IntRange(0, len(s)).Draw(t, "from")
			if rapid.Bool().Draw(t, "whole") {
				from = 0
			}
			to := rapid.IntRange(from, len(s)).Draw(t, "to")
			if rapid.Bool().Draw(t, "to its end") {
				to = len(s)
			}
			out = append(out, s[from:to]...)
		}
	}
	return out
}

// inPieces sends a text through a stream; size says how long the next piece is.
func inPieces(r *Redactor, text []byte, size func(rest []byte) int) (out []byte) {
	s := r.NewStream()
	for rest := text; len(rest) > 0; {
		n := size(rest)
		out = append(out, s.Push(rest[:n])...)
		rest = rest[n:]
	}
	return append(out, s.Flush()...)
}

func TestChunkingNeverMatters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := New()
		var values []string
		for i := range rapid.IntRange(1, 3).Draw(t, "values") {
			v := drawValue(t, "value")
			if i > 0 && rapid.Bool().Draw(t, "related") { // one that overlaps another
				v = values[0][len(values[0])/2:] + v
				if strings.TrimSpace(v) != v {
					v = "x" + v + "x"
				}
			}
			values = append(values, v)
			r.Register(fmt.Sprint("v", i), []byte(v))
		}
		text := drawText(t, values)
		want := r.Bytes(bytes.Clone(text))
		out := inPieces(r, text, func(rest []byte) int { return rapid.IntRange(1, min(len(rest), 9)).Draw(t, "piece") })
		if !bytes.Equal(out, want) {
			t.Fatalf("%q\n in pieces %q\n as whole  %q", text, out, want)
		}
		got, err := io.ReadAll(iotest.OneByteReader(r.Reader(io.NopCloser(iotest.OneByteReader(bytes.NewReader(text))))))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%q\n by a reader %q\n as whole    %q, %v", text, got, want, err)
		}
	})
}

// What a stream keeps back is bounded by what a value can be long.
func TestAStreamKeepsBackNoMoreThanAValue(t *testing.T) {
	t.Parallel()
	r := New()
	r.Register("k", []byte("sekret-value"))
	s := r.NewStream()
	most := 0
	for range 4096 {
		s.Push([]byte("sekret-valu\n\n e\\u00"))
		most = max(most, len(s.held))
	}
	if most > 200 {
		t.Errorf("%d bytes are kept back", most)
	}
}

func TestRegisteringWhileSearching(t *testing.T) {
	t.Parallel()
	r := New()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 50 {
				v := fmt.Sprintf("value-%d-%d-value", i, n)
				if n%2 == 0 {
					r.Register("a", []byte(v))
				} else {
					r.Transient("b", []byte(v))
				}
				if got := r.String("x " + v); strings.Contains(got, v) {
					t.Errorf("%q is left", v)
				}
			}
		})
	}
	wg.Wait()
	for n := range maxTransient + 1 {
		r.Transient("t", fmt.Appendf(nil, "transient-%d", n))
	}
	if r.Find([]byte("transient-0")) != "" || r.Find([]byte("transient-1 ")) == "" {
		t.Error("not the oldest is forgotten")
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"short": "shorter", "completed": "guessed", "12345678": "guessed", "aaaaaaaaaaaa": "guessed", "operator": "guessed",
		"password": "guessed", "sk-live-0123456789abcdef": "", "hunter2hunter2": "", "tr0ub4dor&3": "", "0123456789abcdef0123": "",
	} {
		why, short := Judge([]byte(text))
		if (why == "") != (want == "") || !strings.Contains(why, want) || short != (want == "shorter") {
			t.Errorf("%s: %q", text, why)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add([]byte(token), []byte("x"+token+`y%41\u0041`), uint8(3))
	f.Add([]byte("sekret-value"), []byte(`{"a":"c2Vr\ncmV0LXZhbHVl"}`), uint8(1))
	f.Add([]byte(" + + + + +"), []byte("+++%2B+++++\\u002b"), uint8(5))
	f.Fuzz(func(t *testing.T, v, text []byte, piece uint8) {
		r := New()
		known := r.Register("k", v)
		whole := r.Bytes(bytes.Clone(text))
		if known && bytes.Contains(whole, bytes.TrimSpace(v)) && !strings.Contains(mark("k"), string(bytes.TrimSpace(v))) && !bytes.Contains(v, []byte("[secret:k]")) &&
			!bytes.ContainsAny(v, "[]") {
			t.Fatalf("%q is left in %q", v, whole)
		}
		if out := inPieces(r, text, func(rest []byte) int { return min(int(piece)+1, len(rest)) }); !bytes.Equal(out, whole) {
			t.Fatalf("%q in pieces of %d: %q, as a whole %q", text, int(piece)+1, out, whole)
		}
		if clean := r.JSON(text); json.Valid(text) && !json.Valid(clean) {
			t.Fatalf("%q became %q", text, clean)
		}
	})
}

func BenchmarkRedact(b *testing.B) {
	log := strings.Repeat(`{"time":"2026-01-02T03:04:05Z","level":"INFO","msg":"a call ended","tool":"fs.read","run":"run_0197a3","took_us":1234}`+"\n", 600)
	prose := strings.Repeat("The quick brown fox jumps over the lazy dog, and then it reads the file again. ", 830)
	b64 := base64.StdEncoding.EncodeToString([]byte(prose[:49152]))
	for _, n := range []int{0, 1, 20, 200} {
		r := New()
		for i := range n {
			r.Register(fmt.Sprint("k", i), fmt.Appendf(nil, "%x-Secret/%d+%x", i*7919+13, i, i*104729+17))
		}
		for name, text := range map[string]string{"log": log, "prose": prose, "base64": b64} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				data := []byte(text)
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					if len(r.Bytes(data)) != len(data) {
						b.Fatal("changed")
					}
				}
			})
		}
		b.Run(fmt.Sprintf("json/%d", n), func(b *testing.B) {
			data := []byte(log)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				r.JSON(data)
			}
		})
	}
}
