package result

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ombud-run/ombud/internal/blob"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/tool"
	"github.com/ombud-run/ombud/internal/vault"
)

type bench struct {
	t     testing.TB
	blobs *blob.Store
	reg   *tool.Registry
	inv   *tool.Invoker
	owned map[string]label.Label // conversation + handle
}

func setup(t testing.TB, d *db.DB) *bench {
	t.Helper()
	v, err := vault.New([]byte(strings.Repeat("k", vault.KeySize)))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, blobs: blob.New(d, v), owned: map[string]label.Label{}}
	b.reg, b.inv = tool.NewRegistry(slog.New(slog.DiscardHandler))
	lookup := func(_ context.Context, conversation, handle string) (label.Label, error) {
		if handle == "blob_down" {
			return label.Label{}, errors.New("the store is down")
		}
		l, ok := b.owned[conversation+" "+handle]
		if !ok {
			return l, fault.New(fault.NotFound, "no such step")
		}
		return l, nil
	}
	if err := New(b.blobs, lookup).Register(b.reg); err != nil {
		t.Fatal(err)
	}
	return b
}

// keep stores content as a result of conversation c1.
func (b *bench) keep(content []byte, limit int64, l label.Label) string {
	b.t.Helper()
	ref, err := b.blobs.Put(b.t.Context(), bytes.NewReader(content), limit)
	if err != nil {
		b.t.Fatal(err)
	}
	b.owned["c1 "+ref.ID] = l
	return ref.ID
}

func (b *bench) read(conversation, handle string, offset, limit int64) (tool.Output, error) {
	b.t.Helper()
	raw := fmt.Appendf(nil, `{"handle":%q,"offset":%d`, handle, offset)
	if limit != 0 {
		raw = fmt.Appendf(raw, `,"limit":%d`, limit)
	}
	raw = append(raw, '}')
	if err := b.reg.Validate("result.read", raw); err != nil {
		return tool.Output{}, err
	}
	return b.inv.Call(b.t.Context(), "result.read", tool.Invocation{Conversation: conversation, Input: raw})
}

var goOn = regexp.MustCompile(`\n\[bytes (\d+) to (\d+) of \d+; ([a-z ,]+)(\d*)\]$`)

func TestALongResultIsReadPieceByPiece(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		t.Parallel()
		b := setup(t, d)
		rapid.Check(t, func(rt *rapid.T) {
			line := rapid.StringMatching(`[a-zåäö€😀 \n]{1,40}`).Draw(rt, "line")
			content := strings.Repeat(line, rapid.IntRange(1, 9000).Draw(rt, "times"))
			handle := b.keep([]byte(content), 0, label.Label{})
			limit := rapid.SampledFrom([]int64{0, 61440, 50_001}).Draw(rt, "limit")
			var whole strings.Builder
			for offset := int64(0); ; {
				out, err := b.read("c1", handle, offset, limit)
				if err != nil {
					rt.Fatal(err)
				}
				m := goOn.FindStringSubmatch(out.Text)
				if m == nil || len(out.Text) > 64<<10 {
					rt.Fatalf("%d bytes end with %q", len(out.Text), out.Text[max(0, len(out.Text)-80):])
				}
				whole.WriteString(strings.TrimSuffix(out.Text, m[0]))
				if m[3] == "this is the end" {
					break
				}
				if _, err := fmt.Sscan(m[4], &offset); err != nil {
					rt.Fatal(err)
				}
			}
			if whole.String() != content {
				rt.Fatalf("read %d bytes of %d, or other ones", whole.Len(), len(content))
			}
		})
	})
}

func TestAHandleIsNoAuthority(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	eve := label.Of(label.Untrusted("eve"), label.Anyone)
	handle := b.keep([]byte("secret"), 0, eve)
	out, err := b.read("c1", handle, 0, 0)
	if err != nil || out.Text != "secret\n[bytes 0 to 6 of 6; this is the end]" || out.Label.String() != eve.String() {
		t.Errorf("its own conversation: %q, %v, %v", out.Text, out.Label, err)
	}
	want := ""
	for _, c := range [][2]string{{"c2", handle}, {"", handle}, {"c1", "blob_0197a3c05b0c7d3e9a4be2f0c1d2e3f4"}} {
		out, err := b.read(c[0], c[1], 0, 0)
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("%v: %q, %v", c, out.Text, err)
			continue
		}
		text := strings.ReplaceAll(err.Error(), c[1], "X")
		if want == "" {
			want = text
		}
		if text != want {
			t.Errorf("%v: refused with %q, others with %q", c, text, want)
		}
	}
	if _, err := b.read("c1", "blob_down", 0, 0); err == nil || fault.Is(err, fault.NotFound) {
		t.Errorf("a lookup that fails: %v", err)
	}
}

func TestEdgesOfAResult(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	short := b.keep([]byte("aå€z"), 0, label.Label{})
	cut := b.keep([]byte("0123456789"), 5, label.Label{})
	for _, c := range []struct {
		handle        string
		offset, limit int64
		want          string
	}{
		{short, 0, 4, "aå\n[bytes 0 to 3 of 7; go on with offset 3]"},
		{short, 3, 4, "€z\n[bytes 3 to 7 of 7; this is the end]"},
		{short, 2, 4, "\uFFFD€\n[bytes 2 to 6 of 7; go on with offset 6]"},
		{cut, 3, 0, "34\n[bytes 3 to 5 of 5; the tool was stopped here, at its limit]"},
	} {
		if out, err := b.read("c1", c.handle, c.offset, c.limit); err != nil || out.Text != c.want {
			t.Errorf("%d+%d: %q, %v, want %q", c.offset, c.limit, out.Text, err, c.want)
		}
	}
	for _, c := range [][2]int64{{7, 0}, {1 << 60, 0}, {-1, 0}, {0, 3}, {0, 61441}} {
		if out, err := b.read("c1", short, c[0], c[1]); !fault.Is(err, fault.Invalid) {
			t.Errorf("%v: %q, %v", c, out.Text, err)
		}
	}
	binary := b.keep(bytes.Repeat([]byte{0x00, 0x85, 0xC2, 0x85}, 20_000), 0, label.Label{})
	out, err := b.read("c1", binary, 0, maxLimit)
	if err != nil || len(out.Text) > 64<<10 || strings.ContainsRune(out.Text, 0) || !strings.Contains(out.Text, "go on with offset") {
		t.Errorf("bytes that are no text: %d bytes, %v", len(out.Text), err)
	}
}

func TestTheDefinitionSaysWhatTheToolDoes(t *testing.T) {
	t.Parallel()
	b := setup(t, dbtest.SQLite(t))
	def, err := b.reg.Get("result.read")
	if err != nil {
		t.Fatal(err)
	}
	in := json.RawMessage(`{"handle":"blob_1\n","offset":7}`)
	need, err := def.Scopes(in)
	if err != nil || fmt.Sprint(need) != "[memory.read]" || !def.ReadOnly || def.Repeat != tool.Repeatable {
		t.Errorf("needs %v, %v; %+v", need, err, def)
	}
	if got := def.Summary(in); got != `read the result "blob_1\n" from byte 7` {
		t.Errorf("shown as %s", got)
	}
}
