package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
)

// block is tar's unit: headers are one, contents are filled up to whole ones.
const block = 512

// maxOctal is the largest size the eleven octal digits of a header hold.
const maxOctal = 1<<33 - 1

// Part is a member of the archive.
type Part struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// header is the one form a member's header has. at is in Unix seconds.
func header(name string, size, at int64) (b [block]byte, err error) {
	if name == "" || len(name) >= 100 || size < 0 || at < 0 || at > maxOctal || strings.ContainsRune(name, 0) {
		return b, fault.New(fault.Internal, "a backup cannot hold member %q of %d bytes", name, size)
	}
	copy(b[0:], name)
	copy(b[100:], "0000600\x00") // mode
	copy(b[108:], "0000000\x00") // uid
	copy(b[116:], "0000000\x00") // gid
	if size <= maxOctal {
		copy(b[124:], fmt.Sprintf("%011o\x00", size))
	} else {
		b[124] = 0x80 // in binary, as GNU tar has it
		binary.BigEndian.PutUint64(b[128:136], uint64(size))
	}
	copy(b[136:], fmt.Sprintf("%011o\x00", at))
	copy(b[148:], "        ")
	b[156] = '0' // a file
	copy(b[257:], "ustar\x0000")
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:], fmt.Sprintf("%06o\x00 ", sum))
	return b, nil
}

var errHeader = errors.New("it is not a header of a backup")

// parseHeader accepts exactly what header makes.
func parseHeader(b [block]byte) (name string, size, at int64, err error) {
	name, _, _ = strings.Cut(string(b[:100]), "\x00")
	if b[124] == 0x80 {
		size = int64(binary.BigEndian.Uint64(b[128:136]))
	} else if size, err = strconv.ParseInt(string(b[124:135]), 8, 64); err != nil {
		return "", 0, 0, errHeader
	}
	if at, err = strconv.ParseInt(string(b[136:147]), 8, 64); err != nil {
		return "", 0, 0, errHeader
	}
	again, err := header(name, size, at)
	if err != nil || again != b {
		return "", 0, 0, errHeader
	}
	return name, size, at, nil
}

// archive writes members one after the other.
type archive struct {
	w     io.Writer
	at    int64 // of every header
	parts []Part
}

// add writes a member of known size.
func (a *archive) add(name string, size int64, body func(w io.Writer) error) error {
	h, err := header(name, size, a.at)
	if err != nil {
		return err
	}
	if _, err := a.w.Write(h[:]); err != nil {
		return err
	}
	m := &member{w: a.w, sum: sha256.New(), left: size}
	if err := body(m); err != nil {
		return err
	}
	if m.left != 0 {
		return fault.New(fault.Internal, "member %s is %d bytes short", name, m.left)
	}
	a.parts = append(a.parts, Part{Name: name, Size: size, SHA256: hex.EncodeToString(m.sum.Sum(nil))})
	_, err = a.w.Write(make([]byte, padding(size)))
	return err
}

func (a *archive) addBytes(name string, content []byte) error {
	return a.add(name, int64(len(content)), func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

func (a *archive) end() error {
	_, err := a.w.Write(make([]byte, 2*block))
	return err
}

func padding(size int64) int64 { return -size & (block - 1) }

// member hashes what is written and holds it to the size that was announced.
type member struct {
	w    io.Writer
	sum  hash.Hash
	left int64
}

func (m *member) Write(p []byte) (int, error) {
	if int64(len(p)) > m.left {
		return 0, fault.New(fault.Internal, "a member of the backup is longer than was announced")
	}
	m.left -= int64(len(p))
	m.sum.Write(p)
	return m.w.Write(p)
}

// damaged is how a backup that does not hold is told.
func damaged(where string, format string, args ...any) error {
	return fault.New(fault.Verification, "the backup is damaged at %s: %w", where, fmt.Errorf(format, args...)).
		WithHint("use another backup, or another copy of this one")
}

// scanner reads an archive from its front and accepts nothing but what archive
// writes.
type scanner struct {
	r     io.Reader
	last  string // member read before
	at    int64
	parts []Part
}

// next reads the header of the next member; io.EOF behind the last one, when the
// file has ended as it should.
func (s *scanner) next() (name string, size int64, err error) {
	where := "its beginning"
	if s.last != "" {
		where = "the header behind " + s.last
	}
	var b [block]byte
	if err := s.full(where, b[:]); err != nil {
		return "", 0, err
	}
	if b == [block]byte{} {
		return "", 0, s.ends()
	}
	name, size, at, err := parseHeader(b)
	if err != nil {
		return "", 0, damaged(where, "%w", err)
	}
	if len(s.parts) > 0 && at != s.at {
		return "", 0, damaged(where, "it has another time than the ones before")
	}
	s.at, s.last = at, name
	return name, size, nil
}

// ends makes sure that there is one more block of zeros and nothing behind it.
func (s *scanner) ends() error {
	var b [block]byte
	if err := s.full("its end", b[:]); err != nil {
		return err
	}
	if b != [block]byte{} {
		return damaged("its end", "it is not closed")
	}
	n, err := io.ReadFull(s.r, b[:1])
	if n != 0 {
		return damaged("its end", "something follows")
	}
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return readFault(err)
}

// body reads the content of the member whose header was read, through fn if that is
// not nil, to its end.
func (s *scanner) body(name string, size int64, fn func(r io.Reader) error) error {
	sum := sha256.New()
	content := &io.LimitedReader{R: s.r, N: size}
	tee := io.TeeReader(content, sum)
	if fn != nil {
		if err := fn(tee); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, tee); err != nil {
		return readFault(err)
	}
	if content.N > 0 {
		return damaged(name, "the file ends within it")
	}
	s.parts = append(s.parts, Part{Name: name, Size: size, SHA256: hex.EncodeToString(sum.Sum(nil))})
	fill := make([]byte, padding(size))
	if err := s.full(name, fill); err != nil {
		return err
	}
	if !bytes.Equal(fill, make([]byte, len(fill))) {
		return damaged(name, "something stands behind it")
	}
	return nil
}

func (s *scanner) full(where string, b []byte) error {
	_, err := io.ReadFull(s.r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return damaged(where, "the file ends there")
	}
	return readFault(err)
}

// readFault classifies an error of reading the file.
func readFault(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok || fault.Is(err, fault.Cancelled) || fault.Is(err, fault.Timeout) {
		return err
	}
	return fault.New(fault.Unavailable, "read the backup: %w", err)
}
