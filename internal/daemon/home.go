package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/id"
	"github.com/ombud-run/ombud/internal/instance"
)

// homeOf names the place whose lock this daemon holds: what is in the home file,
// and the machine and directory it is in, so that a copy elsewhere is another home.
// The caller holds the lock.
func homeOf(in instance.Instance) (string, error) {
	made, err := os.ReadFile(in.HomeFile())
	if errors.Is(err, fs.ErrNotExist) {
		made = []byte(id.New("home"))
		err = os.WriteFile(in.HomeFile(), made, 0o600)
	}
	name := strings.TrimSpace(string(made))
	if err != nil {
		return "", fault.New(fault.Permission, "the name of this state directory: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	sum := sha256.Sum256([]byte(name + "\x00" + host + "\x00" + in.StateDir))
	return "home" + hex.EncodeToString(sum[:12]), nil
}
