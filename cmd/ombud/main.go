// Command ombud is the daemon and its command line.
package main

import (
	"context"
	"os"

	"github.com/ombud-run/ombud/internal/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
