// Package first makes a program that imports it a launcher of jobs, if it was
// started as one, before the rest of it is initialised.
//
// That takes longer than all a launcher does: in ombud the packages above this one
// compile schemas, patterns and tables when they are loaded. Packages are
// initialised after what they import and otherwise by name, so this one comes as
// soon as what it needs is there. Only the time hangs on that order.
package first

import (
	"os"

	"github.com/ombud-run/ombud/internal/confine"
)

var _ = launched()

func launched() bool {
	code, is := confine.Launched(os.Args)
	if is {
		os.Exit(code)
	}
	return is
}
