//go:build !unix

package dbtest

import (
	"errors"
	"os/exec"
)

// giveToServer refuses: the watcher that stops the server is a POSIX shell.
func giveToServer(...string) error {
	return errors.New("throw-away PostgreSQL clusters need a Unix system")
}

func asServer(*exec.Cmd) {}

func serverEnv(string) []string { return nil }
