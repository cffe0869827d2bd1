package audit

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"strconv"
	"strings"
)

// summer computes the links of a chain one after the other without making new
// hashes for each.
type summer struct {
	sum, mac hash.Hash // mac is nil where there is no secret
	text     []byte
	out      [2 * sha256.Size]byte
}

func newSummer(key []byte) summer {
	s := summer{sum: sha256.New()}
	if key != nil {
		s.mac = hmac.New(sha256.New, key)
	}
	return s
}

// next is link.next. What it returns holds until it is called again.
func (s *summer) next(l link, text string) link {
	s.text = append(s.text[:0], text...)
	s.sum.Reset()
	s.sum.Write(l.hash)
	s.sum.Write(s.text)
	out := link{seq: l.seq + 1, hash: s.sum.Sum(s.out[:0:sha256.Size])}
	if s.mac != nil {
		s.mac.Reset()
		s.mac.Write(l.mac)
		s.mac.Write(out.hash)
		out.mac = s.mac.Sum(s.out[sha256.Size:sha256.Size])
	}
	return out
}

// spot is what a check needs of an entry's text.
type spot struct {
	chain   string
	seq, at int64
}

// readSpot reads an entry's text and makes sure that it is in canonical form.
// The usual text is read by scanner, which is many times cheaper than decoding it
// and encoding it again; whatever scanner does not know for sure is left to that.
func readSpot(text string) (spot, error) {
	if p, ok := scanRecord(text); ok {
		return p, nil
	}
	var rec record
	if err := strict(text, &rec); err != nil {
		return spot{}, err
	}
	return spot{rec.Chain, rec.Seq, rec.At}, nil
}

// scanRecord accepts only texts that strict accepts: the keys of record in their
// order, plain ASCII or what redact leaves in strings, numbers as strconv writes them, and nothing empty
// where record leaves out what is empty.
func scanRecord(text string) (p spot, ok bool) {
	s := scanner{rest: text, ok: true}
	s.word(`{"chain":`)
	p.chain = s.str()
	s.word(`,"seq":`)
	p.seq = s.num()
	s.word(`,"at":`)
	p.at = s.num()
	for _, key := range [...]string{`,"kind":`, `,"actor":`, `,"subject":`} {
		s.word(key)
		s.str()
	}
	s.maybe(`,"tool":`)
	s.list(`,"scopes":[`)
	s.maybe(`,"scope_mac":`)
	s.maybe(`,"input_mac":`)
	s.word(`,"outcome":`)
	s.str()
	s.maybe(`,"reason":`)
	s.word(`,"duration_us":`)
	s.num()
	s.word(`,"cost_micro_usd":`)
	s.num()
	if s.has(`,"count":`) && s.num() == 0 {
		s.ok = false
	}
	s.maybe(`,"run":`)
	s.maybe(`,"step":`)
	s.word(`}`)
	return p, s.ok && s.rest == ""
}

// scanner reads canonical JSON from its front. After the first thing it does not
// expect ok is false and what it returns means nothing.
type scanner struct {
	rest string
	ok   bool
}

// has takes word if it stands there.
func (s *scanner) has(word string) bool {
	rest, found := strings.CutPrefix(s.rest, word)
	if found {
		s.rest = rest
	}
	return found
}

func (s *scanner) word(word string) { s.ok = s.has(word) && s.ok }

// maybe takes a key with a text that is not empty, if it stands there.
func (s *scanner) maybe(key string) {
	if s.has(key) && s.str() == "" {
		s.ok = false
	}
}

// list takes a key with at least one text, if it stands there.
func (s *scanner) list(key string) {
	if !s.has(key) {
		return
	}
	s.str()
	for s.ok && s.has(`,`) {
		s.str()
	}
	s.word(`]`)
}

// hidden is what redact leaves of a scope's object.
const hidden = "…"

// str takes a string of plain ASCII and hidden, which need no escapes.
func (s *scanner) str() string {
	s.word(`"`)
	for i := 0; i < len(s.rest); i++ {
		switch c := s.rest[i]; {
		case c == '"':
			out := s.rest[:i]
			s.rest = s.rest[i+1:]
			return out
		case c == hidden[0] && strings.HasPrefix(s.rest[i:], hidden):
			i += len(hidden) - 1
		case c < ' ' || c > '~' || c == '\\':
			s.ok = false
			return ""
		}
	}
	s.ok = false
	return ""
}

// num takes an integer.
func (s *scanner) num() int64 {
	i := 0
	for i < len(s.rest) && (s.rest[i] == '-' || s.rest[i] >= '0' && s.rest[i] <= '9') {
		i++
	}
	n, err := strconv.ParseInt(s.rest[:i], 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != s.rest[:i] {
		s.ok = false
	}
	s.rest = s.rest[i:]
	return n
}
