package recipe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// patient is how long after a broken file was first seen it is looked at again, before the
// operator is told: it may be half written.
const patient = 2 * time.Second

// Start looks at the files and then whenever they change. A notification is only a hint:
// what counts is what a look finds, and there is one now and then anyway.
func (l *Library) Start(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.quit != nil {
		return nil
	}
	w, err := fsnotify.NewWatcher()
	add := func(string) error { return err } // why there is no watcher
	if err != nil {
		w = nil
	} else {
		add = w.Add
	}
	l.watchAll(add)
	if _, err := l.Load(ctx); err != nil {
		l.slog.Warn("the recipes were not read", "error", err) // those in use stay; it goes on trying
	}
	loop, quit := context.WithCancel(context.Background())
	l.quit = quit
	l.loop.Go(func() {
		l.watch(loop, w, add)
		if w != nil {
			_ = w.Close() // nothing is lost with it
		}
	})
	return nil
}

// Stop ends the looking. It is safe to call twice.
func (l *Library) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.quit != nil {
		l.quit()
		l.loop.Wait()
		l.quit = nil
	}
}

// ails reports whether the last look found something that a change of modes may mend.
func (l *Library) ails() bool {
	l.loading.Lock()
	defer l.loading.Unlock()
	return l.trouble != "" || len(l.broken) > 0
}

// Late is why changes of files are seen only now and then, "" if they are seen at once.
func (l *Library) Late() string {
	if why := l.late.Load(); why != nil {
		return *why
	}
	return ""
}

// watchAll watches the directories of all files, and those that links lead to. It is called
// before every look: what is watched already stays so.
func (l *Library) watchAll(add func(path string) error) {
	paths := append([]string(nil), l.o.Files...)
	why := ""
	watch := func(path string) {
		if err := add(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // where it is not there, the look now and then finds it
			why = fmt.Sprintf("changes of recipes are seen only every %v: watch %s: %v", l.o.Poll, path, err)
		}
	}
	if l.o.Dir != "" {
		watch(l.o.Dir)
		list, err := os.ReadDir(l.o.Dir)
		if err != nil {
			list = nil // the look tells of it
		}
		for _, e := range list {
			paths = append(paths, filepath.Join(l.o.Dir, e.Name()))
		}
	}
	for _, path := range paths {
		watch(filepath.Dir(path))
		if real, err := filepath.EvalSymlinks(path); err == nil {
			watch(filepath.Dir(real))
		}
	}
	if why != "" && l.Late() == "" {
		l.slog.Warn(why)
	}
	l.late.Store(&why)
}

// watch is the loop: when the files have been at rest for a while after a change, or now
// and then, it looks.
func (l *Library) watch(ctx context.Context, w *fsnotify.Watcher, add func(path string) error) {
	var events chan fsnotify.Event
	var errs chan error
	if w != nil {
		events, errs = w.Events, w.Errors
	}
	next := time.NewTimer(l.o.Poll)
	defer next.Stop()
	since := time.Time{} // when the change began that has not been looked at
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			if e.Op == fsnotify.Chmod && !l.ails() {
				continue // programs that back up or index do nothing else
			}
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) < 10*l.o.Quiet { // somebody who writes on and on is not waited for
				next.Reset(l.o.Quiet)
			}
		case _, ok := <-errs: // of too many changes some were missed: a look finds them
			if !ok {
				errs = nil
				continue
			}
			next.Reset(l.o.Quiet)
		case <-next.C:
			since = time.Time{}
			l.watchAll(add) // before the look: what changes after it is told
			again, err := l.Load(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				l.slog.Warn("the recipes were not read", "error", err)
				next.Reset(l.o.Poll)
			case again:
				next.Reset(min(patient, l.o.Poll))
			default:
				next.Reset(l.o.Poll)
			}
		}
	}
}
