package wasmloop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// image is what the memory of a new instance holds before any code of the module has run:
// its segments of data, put where they belong. An instance whose memory begins as a copy
// of it need not put them there one by one, of which a module made by Go has tens of
// thousands. It is the same as one made without, because
//
//   - it is the engine itself that puts the data into the memory, once,
//   - only a module whose code cannot name its segments has an image (it has no section
//     with their number, without which the engine refuses an instruction that does), and
//     that has no start function, which would run before the image is taken,
//   - tables, globals and what the engine keeps are made anew for each instance, and
//     `_initialize` runs in each, so randomness, clocks and all that comes of them are its
//     own.
type image struct {
	data  []byte    // without the zeros it ends in
	spare sync.Pool // of *[]byte: memory of instances that ended well, as long as it was used
}

// maxSpare is the longest memory that is kept for another instance.
const maxSpare = 16 << 20

// newImage is the image of a module, or why it can have none.
func newImage(ctx context.Context, s *survey, limitPages uint32) (_ *image, err error) {
	switch {
	case s.sections[secData] == nil || s.sections[secMemory] == nil:
		return nil, errors.New("it has no data")
	case s.sections[secDataCount] != nil:
		return nil, errors.New("its code may name its data")
	case s.sections[secStart] != nil:
		return nil, errors.New("it has a start function")
	}
	husk := section(bytes.Clone(wasmHeader), secMemory, s.sections[secMemory])
	husk = section(husk, secData, s.sections[secData])
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().WithMemoryLimitPages(limitPages))
	defer func() { err = errors.Join(err, rt.Close(context.WithoutCancel(ctx))) }()
	mod, err := rt.Instantiate(ctx, husk)
	if err != nil {
		return nil, err
	}
	if mod.Memory().Size() > maxSpare {
		return nil, errors.New("its memory is too long to be kept for the next instance")
	}
	whole, ok := mod.Memory().Read(0, mod.Memory().Size())
	if !ok {
		return nil, errors.New("its memory cannot be read")
	}
	return &image{data: bytes.Clone(bytes.TrimRight(whole, "\x00"))}, nil
}

// memory is the linear memory of one instance.
type memory struct {
	of    *image
	b     []byte
	most  uint64
	whole []byte // what was reserved for it, of which b is the beginning; nil before
}

var (
	_ experimental.MemoryAllocator = (*memory)(nil)
	_ experimental.LinearMemory    = (*memory)(nil)
)

// memory is a memory that begins as the image.
func (im *image) memory() *memory {
	m := &memory{of: im}
	if old, ok := im.spare.Get().(*[]byte); ok {
		used := *old
		clear(used[copy(used, im.data):]) // beyond what was used it was never written
		m.b = used[:0]
	}
	return m
}

// Allocate is called once: a module has one memory.
func (m *memory) Allocate(_, most uint64) experimental.LinearMemory {
	m.most = most
	return m
}

// Reallocate makes the memory longer. What it is longer by holds zeros. One that becomes long
// is given all the room it may have, once: to copy gigabytes again and again keeps the whole
// process waiting, and what was copied from takes as much again until it is collected.
func (m *memory) Reallocate(size uint64) []byte {
	switch {
	case size > m.most:
		return nil
	case size > uint64(cap(m.b)) && size > maxSpare && m.reserved():
	case size > uint64(cap(m.b)):
		longer := make([]byte, min(m.most, size+size/4))
		if len(m.b) == 0 {
			copy(longer[:size], m.of.data)
		} else {
			copy(longer, m.b)
		}
		m.b = longer
	}
	m.b = m.b[:size]
	return m.b
}

// reserved moves the memory to where it can become as long as it may, if there is such room.
func (m *memory) reserved() bool {
	whole := reserve(m.most)
	if whole == nil {
		return false
	}
	if len(m.b) == 0 {
		copy(whole, m.of.data)
	} else {
		copy(whole, m.b)
	}
	m.whole, m.b = whole, whole
	return true
}

// Free gives back what was reserved; the rest is left to the garbage collector. The engine
// calls it when no code of the module runs any more, nor ever will.
func (m *memory) Free() {
	if m.whole != nil {
		release(m.whole)
		m.whole, m.b = nil, nil
	}
}

// giveBack lets another instance have the memory. Nothing may hold on to it.
func (m *memory) giveBack() {
	if used := m.b; used != nil && cap(used) <= maxSpare {
		m.b = nil
		m.of.spare.Put(&used)
	}
}

// check makes sure that an instance begins with the image, the first and one that gets a
// memory which was written all over.
func (im *image) check(ctx context.Context, instantiate func(context.Context) (api.Module, error)) error {
	for range 2 {
		m := im.memory()
		mod, err := instantiate(experimental.WithMemoryAllocator(ctx, m))
		if err != nil {
			return err
		}
		got := m.b
		if len(got) < len(im.data) || !bytes.Equal(got[:len(im.data)], im.data) || len(bytes.Trim(got[len(im.data):], "\x00")) > 0 {
			err = fmt.Errorf("an instance begins with another memory than the module's")
		}
		for i := range got {
			got[i] = 0xa5
		}
		if err = errors.Join(err, mod.Close(ctx)); err != nil {
			return err
		}
		m.giveBack()
	}
	return nil
}
