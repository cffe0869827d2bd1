package signed

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/fault"
)

// Whoever reads what a loop may do takes a while, and meanwhile others are handed over: by
// another terminal, or by a script that installs twenty at once.
func TestSmallFilesDoNotPutEachOtherOut(t *testing.T) {
	t.Parallel()
	onShelves(t, func(t *testing.T, s *shelf) {
		first := s.hand(hello(t, "1.0.0", nil))
		for n := range 20 {
			s.hand(append(hello(t, "1.0.0", nil), byte(n)))
		}
		if _, err := s.Inspect(t.Context(), first); err != nil {
			t.Error("the first of 21:", err)
		}
		for n := range 4 { // as long as they can be, of which a piece is there
			if _, err := s.Upload(fmt.Sprintf("%064d", n), MaxArtifact, 0, []byte("begun")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Inspect(t.Context(), first); !fault.Is(err, fault.NotFound) {
			t.Error("more is held than may be:", err)
		}
		if _, err := s.Upload(strings.Repeat("0", 64), MaxArtifact, 5, []byte("on")); err != nil {
			t.Error("one that is being handed over was put out:", err)
		}
	})
}
