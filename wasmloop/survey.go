package wasmloop

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// What a module may have besides its memory. The engine allocates for a count before it
// reads what is counted, and what it keeps of functions, tables and globals is outside of
// the memory that a manifest bounds: a few bytes of module could otherwise ask for
// gigabytes of the host.
const (
	maxTypes      = 20_000
	maxValues     = 64 // parameters, or results, of one function
	maxImports    = 1000
	maxFunctions  = 300_000
	maxBody       = 256 << 10 // bytes of one function: the compiler holds it as a whole
	maxLocals     = 10_000    // of one function
	maxWeight     = 16 << 20  // bytes by locals of one function: the compiler keeps each local for each loop
	maxAllLocals  = 4_000_000
	maxTables     = 8
	maxEntries    = 1 << 20   // of all tables together, and what each may grow to
	maxGlobalPart = 256 << 10 // bytes of the section
	maxElemPart   = 1 << 20   // bytes of the section
	maxExports    = 10_000
	maxSegments   = 4_000_000
)

// Sections of a module.
const (
	secCustom = iota
	secType
	secImport
	secFunction
	secTable
	secMemory
	secGlobal
	secExport
	secStart
	secElement
	secCode
	secData
	secDataCount
)

var wasmHeader = []byte("\x00asm\x01\x00\x00\x00")

// survey is what is known of a module before an engine reads it.
type survey struct {
	sections [secDataCount + 1][]byte // their contents; nil for one that is not there
	names    []byte                   // of functions, for what a trap is told with
}

// look reads the structure of a module, all but its instructions, and refuses one that
// asks for more than it may have. What a module does is for the engine to validate.
func look(module []byte) (*survey, error) {
	rest, ok := bytes.CutPrefix(module, wasmHeader)
	if !ok {
		return nil, fmt.Errorf("%w: it is no module of WebAssembly 1", ErrMalformed)
	}
	s := &survey{}
	c := &cursor{rest: rest}
	for len(c.rest) > 0 && c.err == nil {
		id := c.byte()
		part := c.take(c.u32())
		switch {
		case c.err != nil:
		case id > secDataCount:
			c.fail("a section with the number %d", id)
		case id == secCustom:
			s.custom(part)
		case s.sections[id] != nil:
			c.fail("two sections with the number %d", id)
		default:
			s.sections[id] = slices.Clip(part)
			if part == nil {
				s.sections[id] = []byte{}
			}
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	for id, check := range checks {
		part := s.sections[id]
		if check == nil || part == nil {
			continue
		}
		c := &cursor{rest: part}
		if check(c); c.err == nil && len(c.rest) > 0 {
			c.fail("%d bytes too many", len(c.rest))
		}
		if c.err != nil {
			return nil, fmt.Errorf("section %d: %w", id, c.err)
		}
	}
	return s, nil
}

// checks read one section each. Of the others the engine reads a number only.
var checks = [secDataCount + 1]func(*cursor){
	secType: func(c *cursor) {
		for range c.count("types", maxTypes) {
			if c.byte() != 0x60 {
				c.fail("a type that is none of a function")
			}
			c.take(c.countOf("parameters", maxValues))
			c.take(c.countOf("results", maxValues))
		}
	},
	secImport: func(c *cursor) {
		for range c.count("imports", maxImports) {
			from, name := c.take(c.u32()), c.take(c.u32())
			if kind := c.byte(); kind != 0 && c.err == nil {
				c.fail("it imports %.40q.%.40q, and only functions may be imported", from, name)
			}
			c.u32()
		}
	},
	secFunction: func(c *cursor) {
		for range c.count("functions", maxFunctions) {
			c.u32()
		}
	},
	secTable: func(c *cursor) { c.tables() },
	secGlobal: func(c *cursor) {
		if len(c.rest) > maxGlobalPart {
			c.fail("%d bytes of globals; at most %d are allowed", len(c.rest), maxGlobalPart)
		}
		for range c.count("globals", maxGlobalPart) {
			c.take(2)
			c.constant()
		}
	},
	secExport: func(c *cursor) {
		for range c.count("exports", maxExports) {
			c.take(c.u32())
			c.byte()
			c.u32()
		}
	},
	secElement: func(c *cursor) {
		if len(c.rest) > maxElemPart {
			c.fail("%d bytes of elements; at most %d are allowed", len(c.rest), maxElemPart)
		}
		for range c.count("segments of elements", maxElemPart) {
			c.element()
		}
	},
	secCode: func(c *cursor) {
		all := uint64(0)
		for range c.count("functions", maxFunctions) {
			n := c.u32()
			if n > maxBody {
				c.fail("a function of %d bytes; at most %d are allowed", n, maxBody)
			}
			sum := locals(&cursor{rest: c.take(n), err: c.err}, c)
			if all += sum; uint64(n)*sum > maxWeight {
				c.fail("a function of %d bytes and %d local variables: their product may be %d", n, sum, maxWeight)
			}
		}
		if all > maxAllLocals {
			c.fail("%d local variables; at most %d are allowed", all, maxAllLocals)
		}
	},
	secData: func(c *cursor) {
		for range c.count("segments of data", maxSegments) {
			switch flag := c.u32(); flag {
			case 0:
				c.constant()
			case 1:
			case 2:
				c.u32()
				c.constant()
			default:
				c.fail("a segment of data of kind %d", flag)
			}
			c.take(c.u32())
		}
	},
}

// locals counts the local variables of a function.
func locals(body, in *cursor) (sum uint64) {
	for range body.count("kinds of local variable", maxLocals) {
		sum += uint64(body.u32())
		body.byte()
	}
	switch {
	case body.err != nil && in.err == nil:
		in.err = body.err
	case sum > maxLocals:
		in.fail("a function of %d local variables; at most %d are allowed", sum, maxLocals)
	}
	return sum
}

// tables reads the section of tables, and returns it anew with an end to each.
func (c *cursor) tables() (bounded []byte) {
	n := c.countOf("tables", maxTables)
	bounded = binary.AppendUvarint(nil, uint64(n))
	sum := uint64(0)
	for range n {
		kind, flag := c.byte(), c.byte()
		least, most := c.u32(), uint32(math.MaxUint32)
		switch flag {
		case 0:
		case 1:
			most = c.u32()
		default:
			c.fail("a table of kind %#x %#x", kind, flag)
		}
		if sum += uint64(least); sum > maxEntries {
			c.fail("tables of %d entries; at most %d are allowed", sum, maxEntries)
		}
		bounded = append(bounded, kind, 1)
		bounded = binary.AppendUvarint(bounded, uint64(least))
		bounded = binary.AppendUvarint(bounded, uint64(max(least, min(most, maxEntries))))
	}
	return bounded
}

// element reads one segment of elements.
func (c *cursor) element() {
	flag := c.u32()
	if flag > 7 {
		c.fail("a segment of elements of kind %d", flag)
		return
	}
	if flag&1 == 0 { // it is put into a table
		if flag&2 != 0 {
			c.u32()
		}
		c.constant()
	}
	if flag&3 != 0 {
		c.byte() // its kind or its type
	}
	for range c.count("elements", maxElemPart) {
		if flag&4 != 0 {
			c.constant()
		} else {
			c.u32()
		}
	}
}

// custom keeps the names of functions. All else that is custom, such as what debuggers
// read, is not handed to the engine.
func (s *survey) custom(part []byte) {
	c := &cursor{rest: part}
	if string(c.take(c.u32())) != "name" || s.names != nil {
		return
	}
	for len(c.rest) > 0 && c.err == nil {
		id := c.byte()
		sub := c.take(c.u32())
		if id != 1 || c.err != nil {
			continue
		}
		names := &cursor{rest: sub}
		for range names.count("names", maxFunctions+maxImports) {
			names.u32()
			names.take(names.u32())
		}
		if names.err != nil || len(names.rest) > 0 {
			return // a module runs as well without names
		}
		s.names = sub
	}
}

// module writes the module that is compiled: without what is custom, with an end to each
// table, and without its data if that is put into the memory in another way.
func (s *survey) module(withData bool) []byte {
	out := bytes.Clone(wasmHeader)
	for _, id := range []int{secType, secImport, secFunction, secTable, secMemory, secGlobal, secExport, secStart, secElement, secDataCount, secCode, secData} {
		part := s.sections[id]
		switch {
		case part == nil, id == secData && !withData:
			continue
		case id == secTable:
			part = (&cursor{rest: part}).tables()
		}
		out = section(out, byte(id), part)
	}
	if s.names != nil {
		part := append([]byte("\x04name\x01"), binary.AppendUvarint(nil, uint64(len(s.names)))...)
		out = section(out, secCustom, append(part, s.names...))
	}
	return out
}

func section(out []byte, id byte, part []byte) []byte {
	out = append(out, id)
	out = binary.AppendUvarint(out, uint64(len(part)))
	return append(out, part...)
}

// cursor reads a part of a module. After its first error it reads nothing more.
type cursor struct {
	rest []byte
	err  error
}

func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w module: %s", ErrMalformed, fmt.Sprintf(format, args...))
		c.rest = nil
	}
}

func (c *cursor) byte() byte {
	if b := c.take(1); len(b) == 1 {
		return b[0]
	}
	return 0
}

func (c *cursor) take(n uint32) []byte {
	if uint64(n) > uint64(len(c.rest)) {
		c.fail("a length of %d bytes where %d are left", n, len(c.rest))
		return nil
	}
	b := c.rest[:n]
	c.rest = c.rest[n:]
	return b
}

// u32 reads a number of at most 32 bits, in at most 5 bytes.
func (c *cursor) u32() uint32 {
	v, n := binary.Uvarint(c.rest[:min(5, len(c.rest))])
	if n <= 0 || v > math.MaxUint32 {
		c.fail("no number where one is due")
		return 0
	}
	c.rest = c.rest[n:]
	return uint32(v)
}

// countOf reads how many follow: not more than most, nor more than there are bytes.
func (c *cursor) countOf(what string, most uint32) uint32 {
	n := c.u32()
	switch {
	case n > most:
		c.fail("%d %s; at most %d are allowed", n, what, most)
		return 0
	case uint64(n) > uint64(len(c.rest)):
		c.fail("%d %s in %d bytes", n, what, len(c.rest))
		return 0
	}
	return n
}

// count yields once for each of what follows, and ends at an error.
func (c *cursor) count(what string, most uint32) func(func() bool) {
	return func(yield func() bool) {
		for range c.countOf(what, most) {
			if c.err != nil || !yield() {
				return
			}
		}
	}
}

// constant passes over the expression of a constant.
func (c *cursor) constant() {
	for c.err == nil {
		switch op := c.byte(); op {
		case 0x0b: // end
			return
		case 0x41, 0x42, 0x23, 0xd2: // i32.const, i64.const, global.get, ref.func
			for c.byte()&0x80 != 0 {
			}
		case 0x43: // f32.const
			c.take(4)
		case 0x44: // f64.const
			c.take(8)
		case 0xd0: // ref.null
			c.byte()
		case 0xfd: // v128.const
			if c.u32() != 12 {
				c.fail("no constant where one is due")
			}
			c.take(16)
		default:
			if c.err == nil {
				c.fail("no constant where one is due")
			}
		}
	}
}
