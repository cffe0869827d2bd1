package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/ipc"
	"github.com/ombud-run/ombud/internal/logfile"
	"github.com/ombud-run/ombud/internal/vault"
	"github.com/ombud-run/ombud/internal/wire"
)

// On PostgreSQL several daemons may know one store. One is active: it has the seat.
// The others wait: they hold their instance's lock, answer a few questions on their
// socket and write nothing. One that was replaced stops everything and waits again.

// turn is one time as the active node.
type turn struct {
	seat    *db.Seat
	number  int // from 0, in this process
	standby *standby
}

// lost is closed when another node has taken the seat; nil, which never is, where
// there is none.
func (t turn) lost() <-chan struct{} {
	if t.seat == nil {
		return nil
	}
	return t.seat.Lost()
}

// asked is closed when a client has asked the node that waited to end; nil, which never
// is, where nobody waited. It may have been asked while it was becoming the active one.
func (t turn) asked() <-chan struct{} {
	if t.standby == nil {
		return nil
	}
	return t.standby.asked
}

// name tells the turns of a process apart for the engine of runs, which takes every
// earlier node of one home for dead. That of an earlier turn is not: a call that
// ignores its end may still be under way in this process.
func (t turn) name() string {
	if t.number == 0 {
		return ""
	}
	return fmt.Sprintf(".%d", t.number)
}

// takeTurns waits for the seat and works while it has it, again and again. The lock
// is held all the time.
func takeTurns(ctx context.Context, o Options) (err error) {
	if err := o.Instance.MakeDirs(); err != nil {
		return err
	}
	unlock, err := db.Lock(o.Instance.LockFile())
	if err != nil {
		return err
	}
	defer unlock()
	if o.Ready != nil {
		o.Ready = sync.OnceFunc(o.Ready)
	}
	var forget func()
	if o.Ask, forget = askOnce(o.Ask); forget != nil {
		defer forget()
	}
	for n := 0; ; n++ {
		s := newStandby(o)
		seat, err := s.wait(ctx)
		if err != nil {
			err = s.hide.Error(errors.Join(err, s.stop(context.WithoutCancel(ctx))))
			if s.over(ctx) {
				return nil
			}
			return err
		}
		err = work(ctx, o, turn{seat, n, s})
		err = errors.Join(err, s.stop(context.WithoutCancel(ctx)), seat.Release(context.WithoutCancel(ctx)))
		if !errors.Is(err, db.ErrReplaced) || ctx.Err() != nil {
			return err
		}
		o.Logger.Info("waiting to be the active node again")
	}
}

// askOnce asks a person for the passphrase once: nobody may be there when this node is
// to take over. forget wipes what was answered.
func askOnce(ask func(context.Context, vault.Question) (*vault.Secret, error)) (once func(context.Context, vault.Question) (*vault.Secret, error), forget func()) {
	if ask == nil {
		return nil, nil
	}
	var answer *vault.Secret
	return func(ctx context.Context, q vault.Question) (*vault.Secret, error) {
		if answer == nil {
			typed, err := ask(ctx, q)
			if err != nil {
				return nil, err
			}
			answer = typed
		}
		return vault.NewPassphrase("typed when the daemon was started", answer.Reveal())
	}, func() { answer.Wipe() }
}

// takeSeat takes the seat of the store that o names. The caller holds the lock.
func takeSeat(ctx context.Context, o Options, how db.SeatOptions) (*db.Seat, error) {
	home, err := homeOf(o.Instance)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "an unnamed machine"
	}
	how.DSN, how.Home, how.Logger = o.Config.Config.Store.Postgres.Reveal(), home, o.Logger
	how.Name = fmt.Sprintf("%s, process %d, instance %s", host, os.Getpid(), o.Instance.Name)
	return db.TakeSeat(ctx, how)
}

// standby is a daemon of which no part is there but what answers while it waits.
type standby struct {
	*Daemon
	holder  atomic.Pointer[db.Holder]
	serving sync.Once
	served  func(context.Context) error // stops the server; nil: it was not started
}

func newStandby(o Options) *standby {
	o, hide := hiding(o)
	return &standby{Daemon: &Daemon{o: o, log: o.Logger, hide: hide, began: time.Now(), asked: make(chan struct{})}}
}

// over reports whether the daemon was asked to end while it waited.
func (s *standby) over(ctx context.Context) bool {
	select {
	case <-s.asked:
		return true
	default:
		return ctx.Err() != nil
	}
}

// wait returns with the seat. If somebody else has it, clients are answered meanwhile
// and what could keep this node from working is looked for first.
func (s *standby) wait(ctx context.Context) (*db.Seat, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-s.asked:
			cancel(nil)
		case <-done:
		}
	}()
	seat, err := takeSeat(ctx, s.o, db.SeatOptions{Waiting: func(h db.Holder) {
		s.holder.Store(&h)
		s.log.Info("standby: another node is active", "active", h.Name)
		s.serving.Do(func() {
			if err := s.begin(ctx); err != nil {
				cancel(err)
			}
		})
	}})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	if err != nil {
		return nil, err
	}
	if s.served != nil {
		s.log.Info("becoming the active node", "fence", seat.Fence())
	}
	return seat, nil
}

// begin opens what the daemon will need, to see that it can, and starts to answer.
func (s *standby) begin(ctx context.Context) error {
	if err := s.rehearse(ctx); err != nil {
		return err
	}
	server := ipc.New(ipc.Config{
		Socket: s.o.Instance.Socket(), HoldsLock: true, UID: os.Getuid(), Admit: admitOperator, Hide: s.hide.JSON,
	}, s.standbyMux(), s.log)
	start, stop := s.serve(s.o.Instance.Socket(), server)
	if err := start(ctx); err != nil {
		return err
	}
	quiet, err := s.listen(ctx)
	if err != nil {
		return errors.Join(err, stop(ctx))
	}
	s.served = func(ctx context.Context) error { return errors.Join(quiet(ctx), stop(ctx)) }
	if s.o.Ready != nil {
		s.o.Ready()
	}
	return nil
}

// rehearse opens the vault of the store and closes it again: a node without the key
// must be told now, and not when it is needed. A store that was not worked with yet,
// or has another schema, tells when it is taken over.
func (s *standby) rehearse(ctx context.Context) error {
	so := storeOptions(s.o)
	so.HoldsLock, so.ReadOnly, so.ReserveFile = true, true, ""
	d, err := db.Open(ctx, so)
	if fault.Is(err, fault.Config) {
		s.log.Warn("the store cannot be looked into now", "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	k, _, err := openVault(ctx, d, s.o, false)
	if err == nil {
		k.Close()
	}
	return err
}

// stop ends the answering. It is safe to call twice, and of none.
func (s *standby) stop(ctx context.Context) error {
	if s == nil || s.served == nil {
		return nil
	}
	stop := s.served
	s.served = nil
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := stop(ctx); err != nil && !fault.Is(err, fault.Timeout) {
		return err
	}
	return nil
}

// standbyMux answers what can be answered without being active; everything else is
// refused, with the name of who is.
func (s *standby) standbyMux() *ipc.Mux {
	m := ipc.NewMux()
	ipc.Handle(m, wire.SystemPing, func(context.Context, wire.Empty) (wire.Pong, error) {
		return wire.Pong{At: time.Now().UnixMicro()}, nil
	})
	ipc.Handle(m, wire.SystemStatus, func(context.Context, wire.Empty) (wire.Status, error) { return s.status(), nil })
	ipc.Handle(m, wire.SystemStop, func(context.Context, wire.Empty) (wire.StopResult, error) {
		s.ask()
		return wire.StopResult{PID: os.Getpid()}, nil
	})
	ipc.HandleStream(m, wire.LogsTail, func(ctx context.Context, req wire.LogsTailRequest, send func(wire.LogLine) error) (wire.Empty, error) {
		return wire.Empty{}, logfile.Read(ctx, s.o.Instance.LogFile(), req, send)
	})
	ipc.Handle(m, wire.ConfigExplain, s.configExplain)
	ipc.Handle(m, wire.DoctorRun, func(context.Context, wire.Empty) (wire.DoctorResult, error) {
		return wire.DoctorResult{Checks: []wire.Check{{ID: "node.standby", Status: "ok", Detail: "it waits; the active node is " + s.active().Name}}}, nil
	})
	m.Refuse(wire.Methods(), s.refuse)
	return m
}

func (s *standby) active() db.Holder {
	if h := s.holder.Load(); h != nil {
		return *h
	}
	return db.Holder{Name: "not known"}
}

func (s *standby) status() wire.Status {
	h := s.active()
	return wire.Status{
		PID: os.Getpid(), Version: s.o.Version, Instance: s.o.Instance.Name, Store: "postgres", StartedAt: s.began.UnixMicro(),
		UptimeS: int64(time.Since(s.began).Seconds()), Detached: s.o.Auto, Idle: true, Missing: []wire.Missing{},
		Standby: &wire.Standby{Active: h.Name, Since: h.Since}, Listeners: []string{s.o.Instance.Socket()},
	}
}

// refuse is what is told to who wants something of the active node.
func (s *standby) refuse() error {
	return fault.New(fault.Unavailable, "this daemon is a standby; the active one of the store is %s", s.active().Name).
		WithHint("ask there, or wait: it takes over when that one ends")
}
