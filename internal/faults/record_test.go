package faults

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/daemon"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

// TestFault09: the tail of the audit log was deleted, and what was left verified. The
// steps that refer to it show that, and without them the anchors; a spoiled or absent
// file of anchors is no success.
func TestFault09TheTailOfTheAuditIsCut(t *testing.T) {
	t.Parallel()
	anchors := filepath.Join(t.TempDir(), "anchors")
	h := build(t, "audit:\n  anchor_file: "+anchors+"\n", `calls: [{tool: time.now}, {tool: memory.list}, {tool: remind.list}]`)
	stop := h.live()
	for range 3 {
		h.answer(h.send("go").RunID)
	}
	ref, err := h.client.AuditAnchor(h.within())
	if err != nil || ref.File != anchors || ref.Ref.Seq < 9 {
		t.Fatalf("%+v, %v", ref, err)
	}
	stop()
	verify := func() (wire.AuditVerifyResult, error) {
		return daemon.VerifyAudit(t.Context(), h.options(), wire.AuditVerifyRequest{})
	}
	if res, err := verify(); err != nil || res.Anchors < 2 {
		t.Fatalf("untouched: %+v, %v", res, err)
	}
	store, err := sql.Open("sqlite", "file:"+h.in.StateDB()+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	change := func(query string) {
		t.Helper()
		if _, err := store.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
	change("DELETE FROM audit WHERE seq > 5")
	change("DELETE FROM audit_checkpoints WHERE seq > 5")
	if _, err := verify(); !fault.Is(err, fault.Verification) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a step refers to what is gone: %v", err)
	}
	change("UPDATE steps SET audit_chain = '', audit_seq = 0, audit_hash = NULL")
	if _, err := verify(); !fault.Is(err, fault.Verification) || !strings.Contains(err.Error(), "anchor") {
		t.Errorf("nothing in the store refers to what is gone: %v", err)
	}
	if err := daemon.Run(t.Context(), h.options()); !fault.Is(err, fault.Verification) {
		t.Errorf("a daemon on it: %v", err)
	}
	whole := h.read(anchors)
	for what, text := range map[string]string{
		"spoiled": strings.Replace(whole, `"hash":"`, `"hash":"0`, 1), "not anchors": "hello\n",
	} {
		h.write(anchors, text)
		if _, err := verify(); !fault.Is(err, fault.Verification) || !strings.Contains(err.Error(), "line 1 of the anchors") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := os.Remove(anchors); err != nil {
		t.Fatal(err)
	}
	if _, err := verify(); !fault.Is(err, fault.Verification) || !strings.Contains(err.Error(), "is not there") {
		t.Errorf("a file that is gone: %v", err)
	}
}

// TestFault36: the record said completed while the delivery had failed, because it was
// written first. Here the reply and its delivery stand before the end of the turn, in
// the one commit, so nobody can see an end without them.
func TestFault36TheEndIsRecordedLast(t *testing.T) {
	t.Parallel()
	h := build(t, "", `calls: [{tool: time.now}]`)
	h.live()
	sent := h.send("go")
	if a := h.answer(sent.RunID); a.Outcome != "completed" || a.Reply != "done" {
		t.Fatalf("%+v", a)
	}
	page, err := h.client.EventsList(h.within(), wire.EventsListRequest{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	told, ended := int64(0), int64(0)
	for _, e := range page.Events {
		switch e.Kind {
		case "comms.sent":
			told = e.Position
		case "run.completed":
			ended = e.Position
		}
	}
	if told == 0 || ended == 0 || told > ended {
		t.Errorf("told at %d, ended at %d", told, ended)
	}
	e, err := h.client.Explain(h.within(), wire.ExplainRequest{ID: sent.EventID})
	if err != nil || len(e.Deliveries) != 1 || e.Deliveries[0].State != "delivered" {
		t.Errorf("%+v, %v", e.Deliveries, err)
	}
}
