package act

import (
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/tool"
)

// A person approved what a tool was; what took its place is asked about anew.
func TestAnApprovalIsVoidWhenAnOwnerReplacesItsTool(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := setup(t, d)
		as := func(revision, says string) {
			def := define("w.do")
			def.Revision = revision
			if bad, err := b.tools.Replace("w", []tool.Offer{{Definition: def, Handler: text(says)}}); err != nil || len(bad) > 0 {
				t.Fatalf("%v, %v", bad, err)
			}
		}
		as("1", "first")
		call := to("c", "w.do", `{"as":"ask"}`)
		id := b.start(call)
		apr := b.asked(id)
		as("2", "second")
		b.decide(apr, "approve")
		again := b.asked(id)
		if again.ID == apr.ID {
			t.Fatal("the approval of the old tool was good for the new one")
		}
		b.decide(again, "approve")
		expect(t, b.end(id, call)[0], OK, "second")
	})
}
