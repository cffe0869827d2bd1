package main

import (
	"strings"
	"testing"

	"github.com/ombud-run/ombud/sdk/loop/looptest"
)

func begin(t *testing.T) *looptest.Host {
	t.Helper()
	h := looptest.New(t, "loop.yaml")
	h.Config["focus"] = "the garden"
	h.Ask = func(string) (string, error) {
		h.Serve("open", item{Title: "Answer Ada", Due: "2026-08-11T09:00:00+02:00", Why: "she asked twice"})
		h.Serve("open", item{Title: "Order seeds", Action: "order the seeds of last year again"})
		return "One of three things got done.", nil
	}
	return h
}

func TestWhatIsOpenIsKeptOnce(t *testing.T) {
	h := begin(t)
	for range 2 {
		if err := h.Run(); err != nil {
			t.Fatal(err)
		}
	}
	if len(h.Reminders) != 1 || h.Reminders[0].Due != "2026-08-11T09:00:00+02:00" || len(h.Proposals) != 1 || h.Proposals[0].Title != "Order seeds" {
		t.Errorf("%+v %+v", h.Reminders, h.Proposals)
	}
	if len(h.Notices) != 2 || h.Notices[0].Body != "One of three things got done." {
		t.Errorf("%+v", h.Notices)
	}
	if prompt := h.Calls[len(h.Calls)-2].Request; !strings.Contains(prompt, "at the garden.") {
		t.Error(prompt)
	}
}

func TestTheAgentIsToldWhatIsWrong(t *testing.T) {
	h := begin(t)
	for _, c := range []struct {
		in   item
		want string
	}{
		{item{}, `{"error":"it has no title"}`},
		{item{Title: "a", Due: "tomorrow"}, `{"error":"due is not a time in RFC 3339, as 2026-08-11T09:00:00Z"}`},
		{item{Title: "a"}, "kept"},
		{item{Title: " A "}, "it is kept already"},
	} {
		if got := h.Serve("open", c.in); got != c.want {
			t.Errorf("%+v: %s, want %s", c.in, got, c.want)
		}
	}
}

func TestACrashMakesNoDifference(t *testing.T) { looptest.EveryCrash(t, begin) }
