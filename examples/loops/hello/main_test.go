package main

import (
	"testing"

	"github.com/ombud-run/ombud/sdk/loop/looptest"
)

func TestItSaysHello(t *testing.T) {
	h := looptest.New(t, "loop.yaml")
	h.Config["who"] = "Ada"
	if err := h.Run(); err != nil {
		t.Fatal(err)
	}
	if len(h.Notices) != 1 || h.Notices[0].Body != "hello Ada" {
		t.Errorf("it told %+v", h.Notices)
	}
}

func TestACrashMakesNoDifference(t *testing.T) {
	looptest.EveryCrash(t, func(t *testing.T) *looptest.Host { return looptest.New(t, "loop.yaml") })
}
