package wasmloop

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// u is a number as modules write it.
func u(n uint64) []byte { return binary.AppendUvarint(nil, n) }

// part is a section of a module.
func part(id byte, content ...[]byte) []byte {
	all := slices.Concat(content...)
	return slices.Concat([]byte{id}, u(uint64(len(all))), all)
}

func moduleOf(parts ...[]byte) []byte {
	return slices.Concat(append([][]byte{wasmHeader}, parts...)...)
}

// least are the sections of a module that can be run and does nothing.
var (
	oneType     = part(secType, u(1), []byte{0x60, 0, 0})
	oneFunction = part(secFunction, u(1), u(0))
	onePage     = part(secMemory, u(1), []byte{0, 1})
	exported    = part(secExport, u(2), []byte("\x03run\x00\x00"), []byte("\x06memory\x02\x00"))
	emptyBody   = part(secCode, u(1), []byte{2, 0, 0x0b})
)

func leastWith(more []byte) []byte {
	return moduleOf(oneType, oneFunction, more, onePage, exported, emptyBody)
}

// Each of these few bytes would have the host allocate gigabytes, at once or in each run,
// or reach what no loop may reach.
func TestAModuleThatAsksForMoreThanItMayHaveIsRefused(t *testing.T) {
	many := u(0xffffffff)
	body := func(locals ...[]byte) []byte {
		b := append(slices.Concat(locals...), 0x0b)
		return part(secCode, u(1), u(uint64(len(b))), b)
	}
	for name, module := range map[string][]byte{
		"types":                      moduleOf(part(secType, many)),
		"parameters":                 moduleOf(part(secType, u(1), []byte{0x60}, many)),
		"results":                    moduleOf(part(secType, u(1), []byte{0x60, 0}, many)),
		"imports":                    moduleOf(part(secImport, many)),
		"an import's name":           moduleOf(part(secImport, u(1), many)),
		"a memory of another":        moduleOf(oneType, part(secImport, u(1), []byte("\x03env\x06memory\x02\x00\x01"))),
		"a table of another":         moduleOf(oneType, part(secImport, u(1), []byte("\x03env\x01t\x01\x70\x00\x01"))),
		"a global of another":        moduleOf(oneType, part(secImport, u(1), []byte("\x03env\x01g\x03\x7f\x00"))),
		"functions":                  moduleOf(part(secFunction, many)),
		"tables":                     leastWith(part(secTable, many)),
		"a table of 2^27":            leastWith(part(secTable, u(1), []byte{0x70, 0}, u(1<<27))),
		"nine tables":                leastWith(part(secTable, u(9), bytes.Repeat([]byte{0x70, 0, 1}, 9))),
		"eight tables of 2^20":       leastWith(part(secTable, u(8), bytes.Repeat(slices.Concat([]byte{0x70, 0}, u(1<<20)), 8))),
		"memories":                   moduleOf(oneType, oneFunction, part(secMemory, u(70_000), bytes.Repeat([]byte{0, 1}, 70_000)), exported, emptyBody),
		"a memory of 4 GiB":          moduleOf(oneType, oneFunction, part(secMemory, u(1), []byte{0}, u(1<<16)), exported, emptyBody),
		"globals":                    moduleOf(part(secGlobal, many)),
		"a hundred thousand globals": moduleOf(part(secGlobal, u(100_000), bytes.Repeat([]byte{0x7f, 1, 0x41, 0, 0x0b}, 100_000))),
		"exports":                    moduleOf(part(secExport, many)),
		"an export's name":           moduleOf(part(secExport, u(1), many)),
		"elements":                   moduleOf(part(secElement, many)),
		"elements of a segment":      moduleOf(part(secElement, u(1), []byte{1, 0}, many)),
		"a megabyte of elements":     moduleOf(part(secElement, u(1), []byte{1, 0}, u(1<<20), make([]byte, 1<<20))),
		"bodies":                     moduleOf(part(secCode, many)),
		"a body too long":            leastAs(part(secCode, u(1), u(maxBody+1), make([]byte, maxBody+1))),
		"a body too heavy":           leastAs(body(u(1), u(9_999), []byte{0x7f}, make([]byte, 2000))),
		"a body past the end":        leastAs(part(secCode, u(1), many)),
		"kinds of locals":            leastAs(body(many)),
		"locals":                     leastAs(body(u(1), many, []byte{0x7f})),
		"locals in two kinds":        leastAs(body(u(2), u(9_999), []byte{0x7f}, u(9_999), []byte{0x7e})),
		"a segment past the end":     moduleOf(onePage, part(secData, u(1), []byte{0, 0x41, 0, 0x0b}, many)),
		"data":                       moduleOf(onePage, part(secData, many)),
		"a section past the end":     slices.Concat(wasmHeader, []byte{secType}, many),
		"two sections of one kind":   moduleOf(oneType, oneType),
		"another section":            moduleOf(part(13, u(0))),
		"a number without an end":    slices.Concat(wasmHeader, []byte{secType}, bytes.Repeat([]byte{0x80}, 20)),
		"more in a section":          moduleOf(part(secType, u(0), []byte{1})),
		"an endless constant":        moduleOf(part(secGlobal, u(1), []byte{0x7f, 0}, bytes.Repeat([]byte{0x41, 0}, 50))),
		"a header cut short":         wasmHeader[:7],
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		_, err := newGuest(t, module, plain)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrMalformed) || strings.Contains(err.Error(), "compiler failed") {
			t.Errorf("%s: %v", name, err)
		}
		if took, n := time.Since(began), after.TotalAlloc-before.TotalAlloc; n > 100<<20 || took > 30*time.Second {
			t.Errorf("%s: it took %s and %d bytes to refuse it", name, took, n)
		}
	}
	if _, err := newGuest(t, leastWith(nil), plain); err != nil {
		t.Errorf("the least there is: %v", err)
	}
}

// leastAs has another section of code.
func leastAs(code []byte) []byte { return moduleOf(oneType, oneFunction, onePage, exported, code) }

// What the engine would do for names and for debuggers is not done: a section that lies
// does no harm, and one that does not is of use where a module traps.
func TestWhatIsCustomIsOfNoHarm(t *testing.T) {
	t.Parallel()
	many := u(0xffffffff)
	for name, custom := range map[string][]byte{
		"names that lie":      part(secCustom, []byte("\x04name\x01"), u(5), many),
		"local names":         part(secCustom, []byte("\x04name\x02"), u(5), many),
		"what a debugger has": part(secCustom, []byte("\x0b.debug_info"), bytes.Repeat([]byte{0xff}, 1000)),
		"a name past the end": part(secCustom, many),
	} {
		if b, err := newGuest(t, leastWith(custom), plain); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if err := b.Run(t.Context(), time.Minute); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	trap := leastAs(part(secCode, u(1), []byte{3, 0, 0x00, 0x0b}))
	named := slices.Concat(trap, part(secCustom, []byte("\x04name\x01\x08\x01\x00\x05hello")))
	if err := guestOf(t, named, plain).Run(t.Context(), time.Minute); err == nil || !strings.Contains(err.Error(), "hello") {
		t.Errorf("a trap in a function with a name: %v", err)
	}
}

func TestALargeModuleIsTaken(t *testing.T) {
	t.Parallel()
	least := leastWith(nil)
	room := maxModule - len(least) - 1 - 4 - 4
	module := slices.Concat(least, part(secCustom, []byte("\x03big"), make([]byte, room)))
	if len(module) != maxModule {
		t.Fatalf("it has %d bytes", len(module))
	}
	if err := guestOf(t, module, plain).Run(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
	data := moduleOf(oneType, oneFunction, part(secMemory, u(1), []byte{0}, u(1024)), exported, emptyBody,
		part(secData, u(1), []byte{0, 0x41, 0, 0x0b}, u(60<<20), bytes.Repeat([]byte{7}, 60<<20)))
	if err := guestOf(t, data, plain).Run(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
}

// Whatever is refused or taken, what is handed to the engine says the same as the module.
func FuzzLook(f *testing.F) {
	f.Add(leastWith(part(secTable, u(1), []byte{0x70, 0, 1})))
	for _, name := range []string{"outside", "foreign", "spin", "liar"} {
		f.Add(wat(f, name))
	}
	f.Fuzz(func(t *testing.T, module []byte) {
		s, err := look(module)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		for _, with := range []bool{true, false} {
			out := s.module(with)
			again, err := look(out)
			if err != nil {
				t.Fatalf("written again it is refused: %v", err)
			}
			if !bytes.Equal(again.module(with), out) {
				t.Fatal("written twice it differs")
			}
			for id, p := range s.sections {
				if id != secTable && (id != secData || with) && !bytes.Equal(p, again.sections[id]) {
					t.Fatalf("section %d differs", id)
				}
			}
		}
	})
}
