package cli

import "testing"

func TestTheLastEventsAreAsManyAsAskedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		head  int64
		limit int
		want  int64
	}{{13527, 0, 13477}, {13527, 5, 13522}, {13527, 1000, 12527}, {13527, 5000, 12527}, {7, 0, 0}, {0, 20, 0}} {
		if got := lastOf(c.head, c.limit); got != c.want {
			t.Errorf("of %d, %d asked for: behind %d, not %d", c.head, c.limit, got, c.want)
		}
	}
}
