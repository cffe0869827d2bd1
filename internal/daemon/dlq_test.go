package daemon

import (
	"errors"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/run"
	"github.com/ombud-run/ombud/internal/wire"
)

// TestARunThatFailedIsADeadLetterThatCanBeDecided lets runs fail that nobody waits for,
// and decides them through the socket.
func TestARunThatFailedIsADeadLetterThatCanBeDecided(t *testing.T) {
	t.Parallel()
	for _, kind := range dbtest.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			o := options(t, storeOf(t, kind))
			d, err := open(t.Context(), o, turn{})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				_, err := d.runs.Start(t.Context(), run.Spec{Kind: noticeRun, Name: "clock", Actor: "test", Input: "no notice"})
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := d.close(); err != nil {
				t.Fatal(err)
			}
			c, _ := up(t, o)
			list := func(all bool) []wire.DeadLetter {
				t.Helper()
				res, err := c.DLQList(t.Context(), wire.DLQListRequest{All: all, Source: "run", Name: noticeRun})
				if err != nil {
					t.Fatal(err)
				}
				return res.Letters
			}
			until(t, "three dead letters", func() bool { return len(list(false)) == 3 })
			page, err := c.DLQList(t.Context(), wire.DLQListRequest{Limit: 2})
			if err != nil || len(page.Letters) != 2 || page.Next != page.Letters[1].ID {
				t.Errorf("a page: %+v, %v", page, err)
			}
			if rest, err := c.DLQList(t.Context(), wire.DLQListRequest{Limit: 2, After: page.Next}); err != nil || len(rest.Letters) != 1 || rest.Next != "" {
				t.Errorf("the next page: %+v, %v", rest, err)
			}
			status, err := c.SystemStatus(t.Context())
			if err != nil || status.DeadLetters != 3 {
				t.Errorf("status counts %d, %v", status.DeadLetters, err)
			}
			sent, err := c.EventsList(t.Context(), wire.EventsListRequest{Kinds: []string{"comms.sent"}})
			if err != nil || len(sent.Events) != 1 || !strings.Contains(string(sent.Events[0].Data), "Given up: the toolnotice run") {
				t.Errorf("told %+v, %v", sent.Events, err)
			}
			first, second, third := list(false)[0], list(false)[1], list(false)[2]
			shown, err := c.DLQShow(t.Context(), wire.DLQRequest{ID: first.ID})
			if err != nil || shown.Letter.Title != "clock" || len(shown.Letter.WaysToGoOn) != 4 || shown.Letter.Problem.Message == "" {
				t.Errorf("shown: %+v, %v", shown, err)
			}
			if e, err := c.Explain(t.Context(), wire.ExplainRequest{ID: first.ID}); err != nil || e.Run == nil || e.Run.ID != first.Ref {
				t.Errorf("explain: %+v, %v", e, err)
			}
			if _, err := c.DLQReplay(t.Context(), wire.DLQReplayRequest{ID: first.ID}); err != nil {
				t.Fatal(err)
			}
			fresh, err := c.DLQReplay(t.Context(), wire.DLQReplayRequest{ID: second.ID, Fresh: true, Note: "once more"})
			if err != nil || fresh.Letter.RunID == "" || fresh.Letter.RunID == second.Ref || fresh.Letter.State != "replayed" {
				t.Errorf("afresh: %+v, %v", fresh, err)
			}
			// Both fail again: the first waits again, the new run is one more.
			until(t, "them to fail again", func() bool { return len(list(false)) == 3 && len(list(true)) == 4 })
			if again := list(false)[0]; again.ID != first.ID || again.Attempts != 2 || again.Replays != 1 {
				t.Errorf("given up again: %+v", again)
			}
			dropped, err := c.DLQDrop(t.Context(), wire.DLQDropRequest{ID: third.ID, Note: "not needed"})
			if err != nil || dropped.Letter.State != "dropped" || dropped.Letter.SettledBy != byOperator {
				t.Errorf("dropped: %+v, %v", dropped, err)
			}
			_, replayed := c.DLQReplay(t.Context(), wire.DLQReplayRequest{ID: third.ID})
			_, twice := c.DLQDrop(t.Context(), wire.DLQDropRequest{ID: third.ID})
			if !fault.Is(replayed, fault.Conflict) || !fault.Is(twice, fault.Conflict) {
				t.Errorf("decided twice: %v", errors.Join(replayed, twice))
			}
			if rep, err := c.RunsVerify(t.Context()); err != nil || len(rep.Mismatches) > 0 {
				t.Errorf("%+v, %v", rep, err)
			}
			if _, err := c.AuditVerify(t.Context(), wire.AuditVerifyRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
}
