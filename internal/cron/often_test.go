package cron

import (
	"testing"
	"time"
)

func TestOftenIsMoreThanOnceInAMinute(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"@every 1s": true, "@every 59s": true, "@every 1m": false, "@every 1h": false,
		"* * * * *": false, "0 7 * * *": false, "@daily": false,
		"* * * * * *": true, "*/30 * * * * *": true, "0,59 0 7 * * *": true, "30 * * * * *": false, "30 0 7 1 1 *": false,
	} {
		s, err := Parse(text, time.UTC)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := s.Often(time.Minute); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
