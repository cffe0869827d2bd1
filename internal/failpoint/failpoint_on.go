//go:build failpoint

// Package failpoint marks the instants at which the crash campaign kills the
// process. This half is built only under the tag failpoint.
//
// FAILPOINT_LOG names a file to which every hit is appended, one name a
// line. FAILPOINT_KILL is "<name>:<n>": at the n-th hit of that name
// (from 1) the process kills itself with SIGKILL.
package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

var state struct {
	sync.Mutex
	hits map[string]int
	log  *os.File
}

// Hit counts this instant and ends the process if it was chosen.
func Hit(name string) {
	state.Lock()
	defer state.Unlock()
	if state.hits == nil {
		state.hits = map[string]int{}
		if path := os.Getenv("FAILPOINT_LOG"); path != "" {
			f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				panic("failpoint: " + err.Error())
			}
			state.log = f
		}
	}
	state.hits[name]++
	if state.log != nil {
		if _, err := state.log.WriteString(name + "\n"); err != nil {
			panic("failpoint: " + err.Error())
		}
	}
	want, n, ok := strings.Cut(os.Getenv("FAILPOINT_KILL"), ":")
	if !ok || want != name {
		return
	}
	if at, err := strconv.Atoi(n); err == nil && at == state.hits[name] {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {} // the signal arrives before anything else happens
	}
}
