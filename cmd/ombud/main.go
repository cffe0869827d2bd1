// Command ombud is the daemon and its command line. Started by itself as the
// launcher of a job, it is that and nothing else.
package main

import (
	"context"
	"os"
	_ "time/tzdata" // zones by name on machines that have no table of them

	"github.com/ombud-run/ombud/internal/cli"
	_ "github.com/ombud-run/ombud/internal/confine/first" // a launcher of jobs goes no further
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
