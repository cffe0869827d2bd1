//go:build unix

package crashtest

import (
	"errors"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
)

// cable stands between a node and the server of its store, until it is cut.
type cable struct {
	server string

	mu      sync.Mutex
	cut     bool
	swallow bool // cut: what is sent goes nowhere, and nobody is told
	ends    map[net.Conn]bool
	all     sync.WaitGroup
}

// newCable returns it with the address that leads through it.
func newCable(t *testing.T, dsn string) (*cable, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	c := &cable{server: filepath.Join(q.Get("host"), ".s.PGSQL.5432"), ends: map[net.Conn]bool{}}
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	c.all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			c.all.Go(func() { c.connect(client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.set(true, false)
		c.all.Wait()
	})
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	return c, u.String()
}

// set cuts it, with or without a word to either side, or mends it.
func (c *cable) set(cut, swallow bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut, c.swallow = cut, swallow
	if cut && swallow {
		return
	}
	for end := range c.ends { // also those that went nowhere until now
		_ = end.Close()
	}
	clear(c.ends)
}

// keep counts an end in; false if there is no way through now.
func (c *cable) keep(end net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut && !c.swallow {
		_ = end.Close()
		return false
	}
	c.ends[end] = true
	return true
}

func (c *cable) swallows() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

func (c *cable) connect(client net.Conn) {
	defer client.Close()
	if !c.keep(client) {
		return
	}
	server, err := net.Dial("unix", c.server)
	if err != nil {
		return
	}
	defer server.Close()
	if !c.keep(server) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			defer way[0].Close()
			defer way[1].Close()
			buf := make([]byte, 64<<10)
			for {
				n, err := way[0].Read(buf)
				if n > 0 && !c.swallows() {
					_, err = way[1].Write(buf[:n])
				}
				if err != nil && !errors.Is(err, io.ErrNoProgress) {
					return
				}
			}
		})
	}
	both.Wait()
}
