//go:build !unix

package shell

import (
	"context"
	"io"
	"runtime"

	"github.com/ombud-run/ombud/internal/fault"
)

func start(context.Context, command) (io.ReadCloser, error) {
	return nil, fault.New(fault.Unavailable, "running programs is not supported on %s yet", runtime.GOOS)
}
