package agent

import (
	"context"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/label"
	"github.com/ombud-run/ombud/internal/policy"
)

func TestAMessageIsJudgedOnceInTheTransactionThatTakesIt(t *testing.T) {
	t.Parallel()
	b := open(t, dbtest.SQLite(t), setup{})
	judged := 0
	in := Inbound{
		Address: Address{Channel: "local", Chat: "c"}, Sender: "42", Text: "secret word", Key: "k",
		Source: label.Untrusted("x"), Control: true,
		Judge: func(_ context.Context, _ *db.Tx, in *Inbound) (string, bool, error) {
			judged++
			in.Text, in.Tier = "(removed)", policy.Paired
			return "settled", true, nil
		},
	}
	got, err := b.Intake(t.Context(), in)
	if err != nil || got.Run != "" || got.Notice != "settled" {
		t.Fatalf("%+v %v", got, err)
	}
	again, err := b.Intake(t.Context(), in)
	if err != nil || !again.Duplicate || again.Notice != "settled" || judged != 1 {
		t.Errorf("again: %+v %v, judged %d times", again, err, judged)
	}
	ev, err := b.Log.ByID(t.Context(), got.Event)
	if err != nil || string(ev.Data) == "" || strings.Contains(string(ev.Data), "secret word") {
		t.Errorf("the event is %s: %v", ev.Data, err)
	}
	in.Key, in.Judge = "k2", func(context.Context, *db.Tx, *Inbound) (string, bool, error) {
		return "", false, fault.New(fault.Unavailable, "not now")
	}
	if _, err := b.Intake(t.Context(), in); !fault.Is(err, fault.Unavailable) {
		t.Errorf("a message that could not be judged: %v", err)
	}
}
