package signed

import (
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/run"
)

// PostgreSQL keeps no NUL in a text and no long one in an index: what is named so failed
// there when it was to be recorded, and a step's work was done again.
func TestANameThatNotEveryStoreKeepsIsMalformed(t *testing.T) {
	t.Parallel()
	onSites(t, choice{}, func(t *testing.T, s *site) {
		long := strings.Repeat("n", maxName+1)
		id := s.start(t,
			line{Do: "step", Name: "a\x00b", Steps: []line{put("in it")}},
			line{Do: "step", Name: "a\x00b", Once: true},
			ours("wait_signal", `{"name":"s\u0000","timeout_ms":5}`), ours("wait_signal", `{"name":"`+long+`","timeout_ms":5}`),
			ours("after", `{"id":"t\u0000","ms":3600000}`), ours("after", `{"id":"`+long+`","ms":3600000}`),
			ours("cancel_after", `{"id":"t\u0000"}`),
			put("end"),
		)
		if rec := s.end(t, id); rec.State != run.Completed {
			t.Fatalf("%s: %s", rec.State, rec.Error)
		}
		said := strings.Join(s.said(t, id), "\n")
		if n := strings.Count(said, " 5 malformed request: a "); n != 7 {
			t.Errorf("%d of 7 are malformed:\n%s", n, said)
		}
		if got := strings.Join(s.done, " "); got != `t.put{"text":"end"}` {
			t.Error(got)
		}
	})
}
