package httpd

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// process is who has a port.
type process struct {
	pid  int
	name string
}

// listening is the state of a socket that listens, in /proc/net/tcp.
const listening = "0A"

// inodesOf reads a table of sockets as /proc/net/tcp has it and returns the inodes of
// those that listen on a port.
func inodesOf(table io.Reader, port int) (out []string) {
	want := fmt.Sprintf(":%04X", port)
	for lines := bufio.NewScanner(table); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) > 9 && f[3] == listening && strings.HasSuffix(f[1], want) {
			out = append(out, f[9])
		}
	}
	return out
}
