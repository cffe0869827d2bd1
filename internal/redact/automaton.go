package redact

// pattern is one spelling of a value, with the name it is registered by.
type pattern struct {
	text []byte
	name string
}

// automaton finds all of its patterns in one pass (Aho and Corasick). It holds a
// trie whose nodes have few children, nearly always one, so a child is found by
// walking its siblings; only the root is a table.
type automaton struct {
	first [256]int32 // from the root, by byte as it stands in the text
	root  [256]int32 // from the root, by what the byte counts as
	fold  [256]byte  // what a byte counts as
	skip  [256]bool  // passed over within a match
	nodes []node
	names []string // by node.hit
}

type node struct {
	child, sibling, fail int32
	depth                int32
	hit                  int32 // the longest pattern that ends here, -1 if none
	length               int32 // of that pattern
	char                 byte
}

// maxGap is how many bytes in a row are passed over within a match: a line end is
// two at most.
const maxGap = 2

func newAutomaton(fold func(byte) byte, skip string, patterns []pattern) *automaton {
	a := &automaton{nodes: []node{{hit: -1}}}
	for b := range 256 {
		a.fold[b] = fold(byte(b))
	}
	for _, b := range []byte(skip) {
		a.skip[b] = true
	}
	for _, p := range patterns {
		a.add(p)
	}
	a.link()
	for b := range 256 {
		if !a.skip[b] {
			a.first[b] = a.root[a.fold[b]]
		}
	}
	return a
}

func (a *automaton) add(p pattern) {
	at := int32(0)
	for _, b := range p.text {
		next := a.child(at, b)
		if next == 0 {
			next = int32(len(a.nodes))
			a.nodes = append(a.nodes, node{sibling: a.nodes[at].child, depth: a.nodes[at].depth + 1, hit: -1, char: b})
			a.nodes[at].child = next
			if at == 0 {
				a.root[b] = next
			}
		}
		at = next
	}
	if n := &a.nodes[at]; n.hit < 0 { // the name that was first keeps it
		n.hit, n.length = int32(len(a.names)), n.depth
		a.names = append(a.names, p.name)
	}
}

func (a *automaton) child(at int32, b byte) int32 {
	if at == 0 {
		return a.root[b]
	}
	for c := a.nodes[at].child; c != 0; c = a.nodes[c].sibling {
		if a.nodes[c].char == b {
			return c
		}
	}
	return 0
}

// link gives every node the longest suffix of what leads to it that begins a
// pattern, and the longest pattern that ends there.
func (a *automaton) link() {
	queue := make([]int32, 0, len(a.nodes))
	for c := a.nodes[0].child; c != 0; c = a.nodes[c].sibling {
		queue = append(queue, c)
	}
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		for c := a.nodes[at].child; c != 0; c = a.nodes[c].sibling {
			queue = append(queue, c)
			n := &a.nodes[c]
			n.fail = a.step(a.nodes[at].fail, n.char)
			if n.hit < 0 {
				n.hit, n.length = a.nodes[n.fail].hit, a.nodes[n.fail].length
			}
		}
	}
}

// step is the state after one more byte.
func (a *automaton) step(at int32, b byte) int32 {
	for at != 0 {
		if c := a.child(at, b); c != 0 {
			return c
		}
		at = a.nodes[at].fail
	}
	return a.root[b]
}

// run reads text and calls found for every place where a pattern ends, with the
// longest that does. It returns where the pattern begins that text may end in the
// middle of, len(text) if there is none.
func (a *automaton) run(text []byte, found func(start, end int, name string)) int {
	at, gap, skipped := int32(0), 0, -1
	for i, b := range text {
		if at == 0 {
			at, gap = a.first[b], 0
			continue // no pattern is of one byte
		}
		if a.skip[b] {
			skipped = i
			if gap++; gap > maxGap {
				at = 0
			}
			continue
		}
		gap = 0
		at = a.step(at, a.fold[b])
		if n := &a.nodes[at]; n.hit >= 0 {
			found(a.back(text, i+1, n.length, skipped), i+1, a.names[n.hit])
		}
	}
	return a.back(text, len(text), a.nodes[at].depth, skipped)
}

// back is where the last n bytes before end begin that count; skipped is the last
// place where one does not.
func (a *automaton) back(text []byte, end int, n int32, skipped int) int {
	if skipped < end-int(n) {
		return end - int(n)
	}
	for n > 0 {
		end--
		if !a.skip[text[end]] {
			n--
		}
	}
	return end
}
