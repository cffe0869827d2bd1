// Package id makes the identifiers of everything ombud stores:
// "<prefix>_<uuidv7 in hex>", for example evt_0197a3c05b0c7d3e9a4be2f0c1d2e3f4.
// They sort by the millisecond they were made in, and within one process
// strictly by the order they were made.
package id

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"sync"
	"time"
)

var last struct {
	sync.Mutex
	stamp uint64 // 48 bits of milliseconds, then 12 bits of counter
}

// New returns a fresh identifier with the given prefix. It panics only if the
// system has no randomness left, in which case nothing here is safe.
func New(prefix string) string {
	var b [16]byte
	if _, err := rand.Read(b[8:]); err != nil {
		panic("id: no system randomness: " + err.Error())
	}
	stamp := next(uint64(time.Now().UnixMilli()))
	binary.BigEndian.PutUint64(b[:8], stamp>>12<<16|0x7000|stamp&0xfff)
	b[8] = b[8]&0x3f | 0x80
	return prefix + "_" + hex.EncodeToString(b[:])
}

// next keeps the 60-bit stamp strictly growing even when the clock stands still
// or steps back.
func next(ms uint64) uint64 {
	last.Lock()
	defer last.Unlock()
	last.stamp = max(last.stamp+1, ms<<12)
	return last.stamp
}

// Behind returns a text that is behind all identifiers that begin with prefix and before
// all others that follow it: id >= prefix AND id < Behind(prefix) is a range that an index
// of the store serves.
func Behind(prefix string) string { return prefix + "~" }

// Valid reports whether s is an identifier with the given prefix.
func Valid(prefix, s string) bool {
	rest, ok := strings.CutPrefix(s, prefix+"_")
	if !ok || len(rest) != 32 || rest != strings.ToLower(rest) {
		return false
	}
	_, err := hex.DecodeString(rest)
	return err == nil && rest[12] == '7'
}
