package main

import (
	"strings"
	"testing"

	"github.com/ombud-run/ombud/sdk/loop"
	"github.com/ombud-run/ombud/sdk/loop/looptest"
)

func begin(t *testing.T) *looptest.Host {
	t.Helper()
	h := looptest.New(t, "loop.yaml")
	h.Config["latitude"], h.Config["longitude"] = "52.5", "13.4"
	h.HTTP = func(r loop.Request) (loop.Response, error) {
		if !strings.Contains(r.URL, "latitude=52.5&longitude=13.4&") {
			t.Errorf("asked for %s", r.URL)
		}
		return loop.Response{Status: 200, Body: `{"daily":{"time":["2026-08-10","2026-08-11"],"temperature_2m_min":[9,-2.5],
			"wind_gusts_10m_max":[90,59.9],"precipitation_sum":[0,20]}}`}, nil
	}
	return h
}

func TestItWarnsOnceOfTomorrow(t *testing.T) {
	h := begin(t)
	for range 2 {
		if err := h.Run(); err != nil {
			t.Fatal(err)
		}
	}
	if len(h.Notices) != 1 || h.Notices[0].Title != "weather of 2026-08-11" || h.Notices[0].Body != "down to -2.5 °C: bring in what must not freeze\n20 mm of rain" {
		t.Errorf("it told %+v", h.Notices)
	}
	h.Config["frost"], h.Config["rain"] = "-5", "30"
	if err := h.Run(); err != nil || len(h.Notices) != 1 {
		t.Errorf("%v, it told %+v", err, h.Notices)
	}
}

func TestACrashMakesNoDifference(t *testing.T) { looptest.EveryCrash(t, begin) }

func TestItSaysWhatIsWrong(t *testing.T) {
	h := begin(t)
	h.Config["frost"] = "cold"
	if err := h.Run(); err == nil || !strings.Contains(err.Error(), `frost is "cold"`) {
		t.Error(err)
	}
	h = begin(t)
	for _, body := range []string{"", "{}", `{"daily":{"time":["a"]}}`} {
		h.HTTP = func(loop.Request) (loop.Response, error) { return loop.Response{Status: 200, Body: body}, nil }
		if err := h.Run(); err == nil {
			t.Errorf("%q is a forecast", body)
		}
	}
}
