package client

// envelope finds the id of a JSON-RPC message that is too long to be kept: it reads the
// message in pieces and remembers nothing but where it is. A message that is no JSON gives
// no id, or a wrong one, which is then of no call.
type envelope struct {
	depth   int
	inText  bool
	escaped bool
	name    []byte // of the key at the top, while it may be "id"
	key     bool   // the text being read may be a key
	value   bool   // what is being read is the value of "id"
	id      []byte
	done    bool
}

const maxID = 64 // bytes of an id that is looked at

// feed reads a piece.
func (e *envelope) feed(piece []byte) {
	for _, c := range piece {
		if e.done {
			return
		}
		if e.inText {
			e.text(c)
		} else {
			e.plain(c)
		}
	}
}

func (e *envelope) text(c byte) {
	e.take(c)
	switch {
	case e.escaped:
		e.escaped = false
	case c == '\\':
		e.escaped = true
	case c == '"':
		e.inText = false
		return
	}
	if e.key && len(e.name) <= len("id") {
		e.name = append(e.name, c)
	}
}

func (e *envelope) plain(c byte) {
	switch c {
	case '"':
		e.inText = true
		if e.key = e.depth == 1 && !e.value; e.key {
			e.name = e.name[:0]
		}
		e.take(c)
		return
	case ':':
		if e.depth == 1 && string(e.name) == "id" && !e.value {
			e.value, e.id, e.name = true, nil, e.name[:0]
			return
		}
		if e.depth == 1 {
			e.name = e.name[:0]
		}
	case '{', '[':
		e.depth++
	case '}', ']':
		if e.depth--; e.depth == 0 {
			e.done = true
			return
		}
	case ',':
		if e.depth == 1 {
			e.done = e.value
			e.name = e.name[:0]
			return
		}
	}
	e.take(c)
}

// take keeps a byte of the id.
func (e *envelope) take(c byte) {
	if !e.value || e.done || c == ' ' && !e.inText || c == '\t' || c == '\r' {
		return
	}
	if e.id = append(e.id, c); len(e.id) > maxID {
		e.value, e.id = false, nil // that is no id
	}
}

// found is the text of the id, "" for none.
func (e *envelope) found() string {
	if !e.value {
		return ""
	}
	return string(e.id)
}
