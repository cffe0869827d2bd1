package signed

import (
	"context"
	"errors"
	"sync"

	"github.com/ombud-run/ombud/wasmloop"
)

// keepCompiled is how many compiled modules are kept in memory that no run uses.
const keepCompiled = 8

// pool keeps modules compiled between runs.
type pool struct {
	make func(ctx context.Context, sha string) (*wasmloop.Runner, wasmloop.Manifest, error)

	making sync.WaitGroup

	mu    sync.Mutex
	clock int64
	all   map[string]*compiled
}

// compiled is a module, or one that is being compiled.
type compiled struct {
	ready  chan struct{} // closed when the rest is set
	module *wasmloop.Runner
	m      wasmloop.Manifest
	err    error

	users int // under the pool's lock, as the rest
	used  int64
	gone  bool // forgotten: it is closed when nobody uses it
}

// get returns the module of an artifact, compiling it if need be, for all who ask: that one of
// them gives up does not end it. done gives it back.
func (p *pool) get(ctx context.Context, sha string) (_ *wasmloop.Runner, _ wasmloop.Manifest, done func(), err error) {
	p.mu.Lock()
	if p.all == nil {
		p.all = map[string]*compiled{}
	}
	c, there := p.all[sha]
	if !there {
		c = &compiled{ready: make(chan struct{}), users: 1}
		p.all[sha] = c
		p.making.Go(func() {
			c.module, c.m, c.err = p.make(context.WithoutCancel(ctx), sha)
			close(c.ready)
			p.put(sha, c)
		})
	}
	p.clock++
	c.users++
	c.used = p.clock
	p.mu.Unlock()
	done = func() { p.put(sha, c) }
	select {
	case <-c.ready:
		err = c.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		done()
		return nil, wasmloop.Manifest{}, nil, err
	}
	return c.module, c.m, done, nil
}

// put gives a module back. One that could not be made or is forgotten is closed with its last
// user, and of those that no run uses so is the one that was used the longest ago, if they
// are too many.
func (p *pool) put(sha string, c *compiled) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.users--; c.users == 0 && (c.gone || c.err != nil) { // who made it was a user
		p.drop(sha, c)
	}
	idle, oldest := 0, ""
	for name, x := range p.all {
		if x.users > 0 {
			continue
		}
		if idle++; oldest == "" || x.used < p.all[oldest].used {
			oldest = name
		}
	}
	if idle > keepCompiled {
		p.drop(oldest, p.all[oldest])
	}
}

// drop closes what nobody uses.
func (p *pool) drop(sha string, c *compiled) {
	if p.all[sha] == c {
		delete(p.all, sha)
	}
	if c.module != nil {
		_ = c.module.Close(context.Background()) // it is only memory
	}
}

// forget has everything made anew when it is used next.
func (p *pool) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for sha, c := range p.all {
		if c.gone = true; c.users == 0 {
			p.drop(sha, c)
		}
		delete(p.all, sha)
	}
}

// close releases all of them.
func (p *pool) close(ctx context.Context) (err error) {
	p.making.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.all {
		if c.module != nil {
			err = errors.Join(err, c.module.Close(ctx))
		}
	}
	p.all = nil
	return err
}
