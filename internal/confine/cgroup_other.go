//go:build !linux

package confine

import (
	"log/slog"

	"github.com/ombud-run/ombud/internal/fault"
)

// Cgroups are not known here.
type Cgroups struct{}

// CgroupOptions are what OpenCgroups needs.
type CgroupOptions struct {
	Name   string
	Logger *slog.Logger
}

// OpenCgroups says that there are none.
func OpenCgroups(CgroupOptions) (*Cgroups, error) {
	return nil, fault.New(fault.Unavailable, "cgroups are a thing of Linux")
}

// CgroupNameOf is not needed here.
func CgroupNameOf(string) (string, error) { return "", nil }

// New says that there are none.
func (*Cgroups) New(string) (Group, error) {
	return nil, fault.New(fault.Unavailable, "cgroups are a thing of Linux")
}

// Kind says nothing.
func (*Cgroups) Kind() string { return "" }

// Bounds reports that no number of processes is held.
func (*Cgroups) Bounds() bool { return false }

// Close does nothing.
func (*Cgroups) Close() error { return nil }

// InJobGroup cannot be told here.
func InJobGroup(int) (bool, error) { return false, nil }
