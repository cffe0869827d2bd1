package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestASlowStopNamesThePartItWaitsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		var order, meanwhile string
		bad := errors.New("bad")
		part := func(name string, takes time.Duration, err error) stop {
			return stop{name, func(context.Context) error {
				<-time.After(takes)
				synctest.Wait()
				if order += name + " "; takes > slowStop {
					meanwhile = said.String()
				}
				return err
			}}
		}
		err := stopAll(t.Context(), slog.New(slog.NewTextHandler(&said, nil)),
			[]stop{part("first", time.Millisecond, nil), part("second", 3*slowStop, bad), part("third", slowStop/2, nil)})
		if !errors.Is(err, bad) || order != "third second first " {
			t.Errorf("%v, in the order %s", err, order)
		}
		if !strings.Contains(meanwhile, "part=second") {
			t.Errorf("while it was waited for: %q", meanwhile)
		}
		if all := said.String(); !strings.Contains(all, "ms=3000") || strings.Contains(all, "first") || strings.Contains(all, "third") {
			t.Errorf("said %s", all)
		}
	})
}
