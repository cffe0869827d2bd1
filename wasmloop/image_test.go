package wasmloop

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

var leakRuns = flag.Int("leak.runs", 200, "runs of the test for state that one run leaves to the next")

// An instance that begins with the image is, byte for byte, one that does not.
func TestAnImageIsWhatTheModuleBeginsWith(t *testing.T) {
	t.Parallel()
	for name, module := range map[string][]byte{
		"scripted": built(t, "scripted"), "wild": built(t, "wild"), "outside": wat(t, "outside"),
		"data over data, and zeros": leastWith(nil),
	} {
		if name[0] == 'd' {
			module = append(bytes.Clone(module), part(secData, u(4),
				[]byte{0, 0x41, 1, 0x0b, 3, 1, 2, 3}, []byte{0, 0x41, 2, 0x0b, 2, 0, 9}, []byte{2, 0, 0x41, 8, 0x0b, 1, 4},
				append([]byte{0, 0x41}, append(sleb(65532), 0x0b, 4, 5, 0, 0, 0)...))...)
		}
		fast, plainly := guestOf(t, module, plain), guestOf(t, module, func(m *Manifest, o *Options) { m.Provides, o.NoImage = nil, true })
		if fast.image == nil || plainly.image != nil {
			t.Fatalf("%s: an image %v, and where there should be none %v", name, fast.image != nil, plainly.image != nil)
		}
		mem := fast.image.memory()
		a, err := fast.instantiate(experimental.WithMemoryAllocator(t.Context(), mem))
		if err != nil {
			t.Fatal(err)
		}
		b, err := plainly.instantiate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(contents(a), contents(b)) || len(fast.image.data) == 0 {
			t.Errorf("%s: they differ", name)
		}
	}
}

func sleb(n int) []byte { // of a number that is not negative
	b := u(uint64(n))
	if b[len(b)-1]&0x40 != 0 {
		b[len(b)-1] |= 0x80
		b = append(b, 0)
	}
	return b
}

func contents(m api.Module) []byte {
	b, _ := m.Memory().Read(0, m.Memory().Size())
	return b
}

// What could tell one run from another, or an instance from the module, has none.
func TestAModuleThatMayHaveNoImageHasNone(t *testing.T) {
	t.Parallel()
	data := part(secData, u(1), []byte{0, 0x41, 0, 0x0b, 1, 7})
	for name, module := range map[string][]byte{
		"a start function": wat(t, "startspin"),
		"no data":          wat(t, "spin"),
		"code that may name its data": moduleOf(oneType, oneFunction, onePage, exported, part(secDataCount, u(1)),
			emptyBody, data),
	} {
		if b := guestOf(t, module, plain); b.image != nil {
			t.Errorf("%s: it has an image", name)
		}
	}
	long := moduleOf(oneType, oneFunction, part(secMemory, u(1), append([]byte{0}, u(16*512)...)), exported, emptyBody, data)
	if b := guestOf(t, long, func(m *Manifest, _ *Options) { m.Provides, m.MemoryMB = nil, 512 }); b.image != nil {
		t.Error("a memory of 512 MiB: it has an image")
	}
	outside := moduleOf(oneType, oneFunction, onePage, exported, emptyBody,
		part(secData, u(1), append([]byte{0, 0x41}, append(sleb(65536), 0x0b, 1, 7)...)))
	b := guestOf(t, outside, plain)
	if err := b.Run(t.Context(), time.Minute); b.image != nil || err == nil {
		t.Errorf("data outside of the memory: %v, an image %v", err, b.image != nil)
	}
}

// An image that is wrong is found before a run begins with it.
func TestAnImageThatIsNotWhatTheModuleBeginsWithIsNotUsed(t *testing.T) {
	t.Parallel()
	b := guestOf(t, wat(t, "outside"), plain)
	if err := b.image.check(t.Context(), b.instantiate); err != nil {
		t.Error(err)
	}
	withData := guestOf(t, wat(t, "outside"), func(m *Manifest, o *Options) { m.Provides, o.NoImage = nil, true })
	other := &image{data: []byte("another")} // the module puts its own data over it
	if err := other.check(t.Context(), withData.instantiate); err == nil {
		t.Error("another image passed")
	}
}

var found = regexp.MustCompile(`^runs=1 words=3 kept=0 goroutines=\d+$`)

// State that a run leaves behind is never found by a later one: globals, maps, the heap up
// to the limit, goroutines; and nothing that is random comes twice, neither what the guest
// asks the host for nor what its runtime was seeded with.
//
// `go test ./wasmloop -run TestNoRunFindsWhatAnotherLeft -leak.runs 10000 -timeout 60m` is
// the long form.
func TestNoRunFindsWhatAnotherLeft(t *testing.T) {
	t.Parallel()
	b := wildGuest(t, func(m *Manifest, _ *Options) { m.MemoryMB = 64 })
	if b.image == nil {
		t.Fatal("it has no image")
	}
	seen := map[string]int{}
	trapped := 0
	for n := range *leakRuns {
		do := []string{"", "maps", "goroutines", "", "maps goroutines"}[n%5]
		switch n % 50 {
		case 17:
			do = "heap"
		case 18:
			do = "maps heap goroutines trap"
		}
		said, err := b.wild(t, time.Minute, do)
		if strings.HasSuffix(do, "trap") {
			trapped++
			if err == nil || len(said) < 2 {
				t.Fatal("it did not trap")
			}
			said = said[:2] // and what its runtime prints of the trap
		} else if err != nil {
			t.Fatalf("run %d, %q: %v", n, do, err)
		}
		if len(said) != 2 || !found.MatchString(said[0]) {
			t.Fatalf("run %d found %q", n, said)
		}
		for k, word := range strings.Fields(said[1]) {
			word = fmt.Sprint(k, word)
			if before, again := seen[word]; again {
				t.Fatalf("runs %d and %d had the same randomness: %s", before, n, word)
			}
			seen[word] = n
		}
	}
	if trapped == 0 || len(seen) != 4**leakRuns {
		t.Errorf("%d trapped, %d random words", trapped, len(seen))
	}
}

// A run that failed hands its memory to nobody; two at once have one each.
func TestMemoryIsOnlyUsedAgainAfterARunThatEndedWell(t *testing.T) {
	b := wildGuest(t, nil)
	next := func() *byte { // of the memory the next instance would get
		m := b.image.memory()
		defer m.giveBack()
		if cap(m.b) == 0 {
			return nil
		}
		return &m.b[:1][0]
	}
	before := next()
	if _, err := b.wild(t, time.Minute, "trap"); err == nil {
		t.Fatal("it did not trap")
	}
	if got := next(); got != nil && got == before {
		t.Error("the memory of a run that trapped is used again")
	}
	m1, m2 := b.image.memory(), b.image.memory()
	m1.Allocate(0, 1<<20)
	m2.Allocate(0, 1<<20)
	x, y := m1.Reallocate(1<<20), m2.Reallocate(1<<20)
	if x == nil || y == nil || &x[0] == &y[0] || m1.Reallocate(1<<20+1) != nil {
		t.Error("two at once have the same memory, or more than they may")
	}
	m1.Allocate(0, maxSpare+2)
	if m1.Reallocate(maxSpare+1) == nil {
		t.Fatal("it did not grow")
	}
	m1.giveBack()
	if m1.b == nil {
		t.Error("a memory longer than is kept was kept")
	}
}

// A call inside of a call: each loop's instance has its own memory, also where the inner
// one has no image and its context comes from the outer one's.
func TestAnInstanceInsideOfACallHasAMemoryOfItsOwn(t *testing.T) {
	t.Parallel()
	inner := guest(t, func(_ *Manifest, o *Options) { o.NoImage = true })
	outer := guest(t, nil)
	outer.kit.onAsk = func(ctx context.Context) string {
		got, err := inner.InvokeTool(ctx, "look", map[string]any{"x": 1}, time.Minute)
		if err != nil {
			return err.Error()
		}
		return got
	}
	said, err := outer.run(t, call(FnAsk, `{"prompt":"p"}`), step{Do: "runs"})
	if err != nil || !strings.Contains(said[0], "look 1 17") || said[1] != "runs 1" {
		t.Errorf("%q %v", said, err)
	}
}

func BenchmarkRun(b *testing.B) {
	for _, plainly := range []bool{false, true} {
		b.Run(fmt.Sprintf("plain=%v", plainly), func(b *testing.B) {
			g := guestOf(b, built(b, "wild"), func(m *Manifest, o *Options) {
				m.Provides, o.NoImage, o.Log = nil, plainly, slog.New(slog.DiscardHandler)
			})
			for b.Loop() {
				if _, err := g.wild(b, time.Minute, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
