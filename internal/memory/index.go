package memory

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// BM25 for texts of one sentence: length matters little.
const (
	saturation = 1.2
	lengthPart = 0.4
)

const (
	maxQueryTerms = 64  // the rarest of a long query
	nearTerms     = 8   // terms that stand in for one nobody wrote
	nearWeight    = 0.5 // of what the term itself would count
	nearPrefix    = 4   // bytes they share at least
)

// rowID names one version of a fact.
type rowID struct {
	id      string
	version int64
}

// entry is what the index knows of a live version. It holds no text.
type entry struct {
	row        rowID
	change     int64
	said       int64
	expires    int64
	importance int
	pinned     bool
	length     int // terms with repeats
	terms      []*term
}

// term is a term and who has it.
type term struct {
	text  string
	posts []posting // in no order
}

type posting struct {
	doc   int32
	times int32
}

// index is the facts of one agent. Whoever has received from turn may use the rest
// and gives it back.
type index struct {
	turn chan struct{} // holds one

	docs     []entry
	free     []int32 // unused places in docs
	rows     map[rowID]int32
	terms    map[string]*term
	length   int // of all live entries
	postings int

	begun bool
	low   int64 // changes from here up to high are in the index
	high  int64
	done  bool // nothing below low is left to read
	full  bool // older facts did not fit
}

func newIndex() *index {
	x := &index{turn: make(chan struct{}, 1)}
	x.reset()
	x.turn <- struct{}{}
	return x
}

// reset empties the index, to be built anew.
func (x *index) reset() {
	*x = index{turn: x.turn, rows: map[rowID]int32{}, terms: map[string]*term{}}
}

// put adds a live version or replaces what was known of it.
func (x *index) put(e entry, text string) {
	x.remove(e.row)
	counts := map[string]int32{}
	for _, t := range terms(text) {
		counts[t]++
		e.length++
	}
	place := x.place()
	e.terms = make([]*term, 0, len(counts))
	for text, times := range counts {
		t := x.terms[text]
		if t == nil {
			t = &term{text: text}
			x.terms[text] = t
		}
		t.posts = append(t.posts, posting{place, times})
		e.terms = append(e.terms, t)
	}
	x.docs[place] = e
	x.rows[e.row] = place
	x.length += e.length
	x.postings += len(e.terms)
}

func (x *index) place() int32 {
	if n := len(x.free); n > 0 {
		p := x.free[n-1]
		x.free = x.free[:n-1]
		return p
	}
	x.docs = append(x.docs, entry{})
	return int32(len(x.docs) - 1)
}

// remove takes a version out. It looks through the postings of its terms: facts
// change at the pace of people.
func (x *index) remove(row rowID) {
	place, ok := x.rows[row]
	if !ok {
		return
	}
	e := x.docs[place]
	for _, t := range e.terms {
		i := slices.IndexFunc(t.posts, func(p posting) bool { return p.doc == place })
		last := len(t.posts) - 1
		t.posts[i] = t.posts[last]
		if t.posts = t.posts[:last]; last == 0 {
			delete(x.terms, t.text)
		}
	}
	x.length -= e.length
	x.postings -= len(e.terms)
	x.docs[place] = entry{}
	x.free = append(x.free, place)
	delete(x.rows, row)
}

// scored is a found version.
type scored struct {
	row    rowID
	change int64
	score  float64
}

// search returns the k best of what holds any of the query's terms.
func (x *index) search(query string, k int, now int64) []scored {
	sum := newScores(len(x.docs))
	for _, p := range x.parts(query) {
		x.partScores(p, sum)
	}
	best := make([]scored, 0, k+1)
	order := func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.change, a.change))
	}
	for _, doc := range sum.docs {
		e := &x.docs[doc]
		if e.expires != 0 && e.expires <= now {
			continue
		}
		s := scored{e.row, e.change, sum.of[doc] * boost(e, now)}
		at, _ := slices.BinarySearchFunc(best, s, order)
		if at < k {
			best = slices.Insert(best, at, s)
			best = best[:min(k, len(best))]
		}
	}
	return best
}

// scores are the sums of all documents that have one, by their place.
type scores struct {
	of   []float64
	docs []int32
}

func newScores(places int) *scores { return &scores{of: make([]float64, places)} }

func (s *scores) add(doc int32, score float64) {
	if s.of[doc] == 0 {
		s.docs = append(s.docs, doc)
	}
	s.of[doc] += score
}

// part is one term of a query with the terms of the index that stand for it.
type part struct {
	terms  []*term
	weight float64
}

// parts looks the query's terms up, the rarest first. In a short query a term that
// no fact has is replaced by those it begins, or that begin it: inflections and
// compounds of languages whose endings stem does not know.
func (x *index) parts(query string) []part {
	unique := map[string]bool{}
	var known []part
	var missing []string
	for _, t := range terms(query) {
		if unique[t] {
			continue
		}
		unique[t] = true
		if have := x.terms[t]; have != nil {
			known = append(known, part{[]*term{have}, 1})
		} else {
			missing = append(missing, t)
		}
	}
	slices.SortFunc(known, func(a, b part) int {
		return cmp.Or(cmp.Compare(len(a.terms[0].posts), len(b.terms[0].posts)), strings.Compare(a.terms[0].text, b.terms[0].text))
	})
	known = known[:min(len(known), maxQueryTerms)]
	if len(unique) <= maxQueryTerms/4 {
		for _, t := range missing {
			if near := x.near(t); len(near) > 0 {
				known = append(known, part{near, nearWeight})
			}
		}
	}
	return known
}

// near returns the terms that t begins or that begin t, the closest in length
// first. They share at least half of the longer one.
func (x *index) near(t string) []*term {
	if len(t) < nearPrefix {
		return nil
	}
	var out []*term
	for text, have := range x.terms {
		short, long := min(len(t), len(text)), max(len(t), len(text))
		if short >= nearPrefix && 2*short >= long && text[:short] == t[:short] {
			out = append(out, have)
		}
	}
	away := func(have *term) int { return max(len(have.text)-len(t), len(t)-len(have.text)) }
	slices.SortFunc(out, func(a, b *term) int {
		return cmp.Or(cmp.Compare(away(a), away(b)), strings.Compare(a.text, b.text))
	})
	return out[:min(nearTerms, len(out))]
}

// partScores adds to the facts that have a part what it counts: the best of its
// terms.
func (x *index) partScores(p part, sum *scores) {
	if len(p.terms) == 1 {
		x.termScores(p.terms[0], p.weight, sum.add)
		return
	}
	best := map[int32]float64{}
	for _, t := range p.terms {
		x.termScores(t, p.weight, func(doc int32, score float64) { best[doc] = max(best[doc], score) })
	}
	for doc, score := range best {
		sum.add(doc, score)
	}
}

func (x *index) termScores(t *term, weight float64, add func(doc int32, score float64)) {
	n, have := float64(len(x.rows)), float64(len(t.posts))
	mean := max(float64(x.length)/n, 1)
	rarity := math.Log(1 + (n-have+0.5)/(have+0.5))
	for _, post := range t.posts {
		times := float64(post.times)
		long := 1 - lengthPart + lengthPart*float64(x.docs[post.doc].length)/mean
		add(post.doc, weight*rarity*times*(saturation+1)/(times+saturation*long))
	}
}

// boost prefers the important, the pinned and the recent where the words match
// about equally: by at most 10 percent each way, 10 and 10.
func boost(e *entry, now int64) float64 {
	const month = 30 * 24 * 3600 * 1e6
	b := 1 + 0.02*float64(e.importance-usualImportance)
	if e.pinned {
		b += 0.1
	}
	return b + 0.1*math.Exp2(-max(0, float64(now-e.said))/month)
}
