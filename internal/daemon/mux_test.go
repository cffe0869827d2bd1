package daemon

import (
	"testing"

	"github.com/ombud-run/ombud/internal/wire"
)

func TestEveryMethodHasOneHandler(t *testing.T) {
	t.Parallel()
	if err := new(Daemon).mux().Check(wire.Methods()); err != nil {
		t.Error(err)
	}
}
