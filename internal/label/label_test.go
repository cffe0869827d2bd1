package label

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func gen() *rapid.Generator[Label] {
	return rapid.Custom(func(t *rapid.T) Label {
		var l Label
		for range rapid.IntRange(0, 3).Draw(t, "parts") {
			s := rapid.SampledFrom([]Source{Operator, Own, Memory, Untrusted("a"), Untrusted("b")}).Draw(t, "source")
			a := rapid.SampledFrom([]Audience{Anyone, OperatorOnly, Conversation("x")}).Draw(t, "audience")
			l = Join(l, Of(s, a))
		}
		return l
	})
}

func TestJoinIsASemilattice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := gen().Draw(t, "a"), gen().Draw(t, "b"), gen().Draw(t, "c")
		if !reflect.DeepEqual(Join(a, b), Join(b, a)) ||
			!reflect.DeepEqual(Join(a, Join(b, c)), Join(Join(a, b), c)) ||
			!reflect.DeepEqual(Join(a, a), Join(a)) {
			t.Fatalf("join of %v, %v, %v is not a semilattice", a, b, c)
		}
		if Join(a, b).Tainted() != (a.Tainted() || b.Tainted()) {
			t.Fatalf("taint is lost joining %v and %v", a, b)
		}
	})
}

func TestALabelHasAnotherIfJoiningItChangesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, m := Join(gen().Draw(t, "l")), gen().Draw(t, "m")
		joined := Join(l, m)
		same := len(joined.Sources) == len(l.Sources) && len(joined.Audiences) == len(l.Audiences)
		if l.Has(m) != same {
			t.Fatalf("%v has %v: %v", l, m, l.Has(m))
		}
	})
}
