//go:build !linux

package confine

import "log/slog"

// Adopt does nothing here: orphans go to init, and a job that forks twice is no
// longer known as one. The threat model says so.
func Adopt(*slog.Logger) (stop func(), err error) { return func() {}, nil }

// IsJob cannot be told here.
func IsJob(int) (bool, error) { return false, nil }
