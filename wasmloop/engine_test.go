package wasmloop

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Loops inside of loops are what the compiler is slowest with: these few kilobytes take it
// seconds. It cannot be stopped, so it is given up on, and cleans up behind itself.
func TestACompilerThatTakesTooLongIsGivenUpOn(t *testing.T) {
	started := goleak.IgnoreCurrent()
	const deep, vars = 400, 400
	code := slices.Concat(u(1), u(vars), []byte{0x7f})
	for n := range deep {
		code = slices.Concat(code, []byte{0x03, 0x40, 0x20}, u(uint64(n%vars)), []byte{0x0d, 0}) // loop, local.get, br_if 0
	}
	code = append(append(code, bytes.Repeat([]byte{0x0b}, deep)...), 0x0b)
	one := append(u(uint64(len(code))), code...)
	module := moduleOf(oneType, part(secFunction, u(8), make([]byte, 8)), onePage, exported, part(secCode, u(8), bytes.Repeat(one, 8)))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := Compile(ctx, &Artifact{Manifest: Manifest{Name: "slow"}, Module: module}, Options{CacheDir: t.TempDir()})
	if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 30*time.Second {
		t.Errorf("after %s: %v", took, err)
	}
	for goleak.Find(started) != nil && time.Since(began) < time.Minute { // which waits a little by itself
	}
	goleak.VerifyNone(t, started)
}

func TestWhyACompilerWasGivenUpOnIsTold(t *testing.T) {
	t.Parallel()
	if !errors.Is(errSlow, ErrMalformed) || !strings.Contains(errSlow.Error(), "2m0s") {
		t.Error(errSlow)
	}
	e := &engine{} // without a runtime, as a compiler that fails
	if err := e.compile(t.Context(), nil); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "the compiler failed") {
		t.Errorf("a compiler that panics: %v", err)
	}
}
