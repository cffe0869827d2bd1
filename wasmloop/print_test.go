package wasmloop

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// A Go module that dies writes each word of its trace by itself.
func TestWhatAModulePrintsIsLoggedByTheLine(t *testing.T) {
	t.Parallel()
	b := guest(t, func(m *Manifest, _ *Options) { m.MemoryMB = 16 })
	for do, want := range map[string]string{"panic": "panic: a guest panics", "allocate": "fatal error: out of memory"} {
		b.said.take()
		if err := b.RunTriggered(t.Context(), time.Hour, "event", steps(step{Do: do})); !errors.Is(err, ErrTrapped) {
			t.Fatal(err)
		}
		said := b.said.take()
		if !slices.ContainsFunc(said, func(line string) bool { return strings.HasPrefix(line, want) }) {
			t.Errorf("no line is %q: %q", want, said)
		}
	}
	i := b.newInstance(t.Context(), nil)
	for _, text := range []string{"one ", "line\n\ntwo\n", strings.Repeat("l", 3000), "l\nlast"} {
		if _, err := i.stdout.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	i.stdout.flush()
	if said := b.said.take(); !slices.Equal(said, []string{"one line", "two", strings.Repeat("l", maxLine), "last"}) {
		t.Errorf("it said %q", said)
	}
	for _, end := range []string{"é", "€", "😀"} { // no half of it is said
		text := strings.Repeat("l", maxLine-1) + end
		if _, err := i.stdout.Write([]byte(text + "\n")); err != nil {
			t.Fatal(err)
		}
		i.print("log", []byte(text))
		if said := b.said.take(); !slices.Equal(said, []string{text[:maxLine-1], text[:maxLine-1]}) {
			t.Errorf("it said %q", said)
		}
	}
}
