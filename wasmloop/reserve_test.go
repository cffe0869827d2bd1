package wasmloop

import (
	"bytes"
	"testing"
)

// A module that grew to the 4 GiB it may have, a page at a time, took 10 of the process and
// kept it from answering for seconds: each copy moved all of it.
func TestALongMemoryIsMovedOnce(t *testing.T) {
	t.Parallel()
	if b := reserve(1); b == nil {
		t.Skip("there is no such room here")
	} else {
		release(b)
	}
	const page, most = 64 << 10, 64 << 20
	im := &image{data: []byte("begins with this")}
	for range 2 { // the second finds nothing of the first
		m := im.memory()
		m.Allocate(page, most)
		moved, at := 0, (*byte)(nil)
		for size := uint64(page); size <= most; size += page {
			b := m.Reallocate(size)
			if uint64(len(b)) != size {
				t.Fatalf("%d bytes, want %d", len(b), size)
			}
			if next := &b[0]; next != at && size > 2*maxSpare { // before it is moved as it was
				at, moved = next, moved+1
			}
			if last := b[size-page:]; size > page && len(bytes.Trim(last, "\x00")) > 0 {
				t.Fatalf("what is new at %d is not empty", size)
			}
			b[size-1] = 1
		}
		b := m.b
		if moved != 1 || !bytes.HasPrefix(b, im.data) || bytes.Count(b, []byte{1}) != most/page {
			t.Errorf("it was moved %d times; %q, %d pages are marked", moved, b[:len(im.data)], bytes.Count(b, []byte{1}))
		}
		if m.Reallocate(most+page) != nil {
			t.Error("it became longer than it may")
		}
		m.Free()
		m.giveBack()
		m.Free()
	}
	long := (&image{data: bytes.Repeat([]byte("x"), page)}).memory() // it is long from the beginning
	long.Allocate(most, most)
	if b := long.Reallocate(most); !bytes.HasPrefix(b, long.of.data) || len(bytes.TrimRight(b, "\x00")) != page {
		t.Error("it does not begin with the image")
	}
	long.Free()
}
