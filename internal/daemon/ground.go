package daemon

import (
	"context"
	"os"
	"time"

	"github.com/ombud-run/ombud/internal/ipc"
)

// lookAtFiles is how soon it is noticed that files were removed under the daemon.
const lookAtFiles = time.Second

// watchFiles looks after what the daemon stands on. A store whose file is gone takes
// nothing more, because it would be lost with the process, and the daemon ends. A
// socket that is gone is made anew: cleaners of temporary directories take sockets.
func (d *Daemon) watchFiles(ctx context.Context) error {
	ground, err := d.db.Ground()
	if err != nil {
		return err
	}
	d.every(ctx, "look at the store's files", lookAtFiles, func(context.Context) error {
		err := ground.Check()
		if err != nil {
			d.db.Condemn(err)
			d.failed.CompareAndSwap(nil, &err)
			d.ask()
		}
		return err
	})
	return nil
}

// watchSocket makes a socket anew when its file is gone or another's. It belongs to
// the server: start it after, stop it before.
func (d *Daemon) watchSocket(path string, server *ipc.Server) (stop func(), err error) {
	mine, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(lookAtFiles)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if now, err := os.Lstat(path); err == nil && os.SameFile(now, mine) {
				continue
			}
			d.log.Warn("the socket was removed; it is made anew", "path", path)
			if mine, err = relisten(ctx, path, server); err != nil {
				d.log.Error("listen again", "path", path, "error", err)
			}
		}
	}()
	return func() { cancel(); <-done }, nil
}

// relisten ends the connections of a socket nobody can find and listens again.
func relisten(ctx context.Context, path string, server *ipc.Server) (os.FileInfo, error) {
	stopping, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = server.Stop(stopping) // what it cuts off, its clients ask for again
	if err := server.Start(ctx); err != nil {
		return nil, err
	}
	return os.Lstat(path)
}

// serve starts a server with the watch over its socket; the functions fit start.
func (d *Daemon) serve(path string, server *ipc.Server) (start, stop func(context.Context) error) {
	unwatch := func() {}
	start = func(ctx context.Context) error {
		if err := server.Start(ctx); err != nil {
			return err
		}
		var err error
		unwatch, err = d.watchSocket(path, server)
		return err
	}
	return start, func(ctx context.Context) error {
		unwatch()
		return server.Stop(ctx)
	}
}
