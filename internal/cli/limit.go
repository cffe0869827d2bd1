package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"
)

// atMost is the value of --limit. One that is out of range is told, not bent.
type atMost struct {
	n    *int
	most int
}

// limitFlag adds --limit, which is 0 if it is not given.
func limitFlag(f *pflag.FlagSet, n *int, most int, usage string) {
	f.Var(&atMost{n, most}, "limit", usage)
}

func (l *atMost) String() string {
	if l.n == nil || *l.n == 0 {
		return ""
	}
	return strconv.Itoa(*l.n)
}

func (*atMost) Type() string { return "int" }

func (l *atMost) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > l.most {
		return fmt.Errorf("it is a number from 1 to %d", l.most)
	}
	*l.n = n
	return nil
}
