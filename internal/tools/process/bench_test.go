//go:build unix

package process

import (
	"encoding/json"
	"testing"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/tool"
)

// BenchmarkCall is the way of a call to a tool process and back, without what act
// records around it.
func BenchmarkCall(b *testing.B) {
	s := setup(b, dbtest.SQLite(b), quick())
	s.add(spec("good"))
	s.ready()
	in := tool.Invocation{Run: "run_1", Key: "run_1/c", Input: json.RawMessage(`{"text":"one two three"}`), Digest: s.tools.Digest("act.echo")}
	for b.Loop() {
		if _, err := s.invoker.Call(b.Context(), "act.echo", in); err != nil {
			b.Fatal(err)
		}
	}
}
