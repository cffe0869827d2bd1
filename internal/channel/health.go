package channel

import (
	"context"
	"fmt"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/outbox"
)

// needsPerson reports whether trying again will not help by itself.
func needsPerson(err error) bool {
	switch fault.ClassOf(err) {
	case fault.Denied, fault.Config, fault.Permission, fault.Invalid, fault.NotFound, fault.Conflict:
		return true
	}
	return false
}

// hearing notes how it stands with what comes in; nil: it works.
func (l *line) hearing(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = err
	l.lockedHealth()
}

// lockedHealth works out the state, and sees to it that the operator is told of a change
// that lasts; the caller holds l.mu.
func (l *line) lockedHealth() {
	before := l.state
	trouble := l.deaf
	if trouble == nil {
		trouble = l.mute
	}
	switch {
	case l.row.removed != 0 || l.row.paused:
		l.state, l.reason = Paused, ""
	case l.broken != nil:
		l.state, l.reason = Failing, l.broken.Error()
	case trouble != nil:
		l.state, l.reason = Degraded, trouble.Error()
		if needsPerson(trouble) {
			l.state = Failing
		}
	case l.stop == nil || l.said == 0 && l.heard == 0 && before == Connecting:
		l.state, l.reason = Connecting, ""
	default:
		l.state, l.reason = Working, ""
	}
	if l.state != before {
		l.since = l.c.DB.Time()
	}
	l.lockedNotice()
}

// lockedNotice tells the operator once of trouble that lasts, and once of its end.
func (l *line) lockedNotice() {
	if l.over {
		return
	}
	bad := l.state == Degraded || l.state == Failing
	switch {
	case bad && !l.told && l.telling == nil:
		wait := l.c.cfg.Grace
		if l.state == Failing {
			wait = 0
		}
		l.telling = time.AfterFunc(wait, l.tellTrouble)
	case !bad && l.telling != nil:
		l.telling.Stop()
		l.telling = nil
	}
	if bad || !l.told || l.state == Connecting { // that it is tried again is no sign that it works
		return
	}
	l.told = false
	if l.state == Working {
		l.c.notices.Go(func() { l.notice(KindWorks, "", fmt.Sprintf("%s works again.", l.name)) })
	}
}

// quiet says whether the operator is told of the channel's health.
func (l *line) quiet(over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = over
	if over && l.telling != nil {
		l.telling.Stop()
		l.telling = nil
	}
}

func (l *line) tellTrouble() {
	l.mu.Lock()
	reason, state := l.reason, l.state
	if l.telling == nil || state != Degraded && state != Failing {
		l.mu.Unlock()
		return
	}
	l.telling, l.told = nil, true
	l.c.notices.Add(1) // before quiet can have passed
	l.mu.Unlock()
	defer l.c.notices.Done()
	text := fmt.Sprintf("The channel %s does not work: %s. It is tried again by itself; what is to be sent waits.", l.name, reason)
	if state == Failing {
		text = fmt.Sprintf("The channel %s does not work, and needs you: %s. `ombud channel show %s` tells more; what is to be sent waits.", l.name, reason, l.name)
	}
	l.notice(KindTrouble, reason, text)
}

// inARow is how many sends in a row have to fail until it is the channel that fails, though
// its network says that all is well.
const inARow = 3

// noteSaying keeps in mind whether what goes out arrives. What is wrong with one chat or one
// message says nothing of the channel. What may be either is found out by asking the network
// who ombud is: as long as it does not say, or once sends fail in a row, it is the channel.
func (l *line) noteSaying(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.fails, l.mute = 0, nil
		l.lockedHealth()
		return
	}
	if _, wait := outbox.Wait(err); wait || !ofChannel(err) {
		return
	}
	if now := time.Now(); l.fails == 0 || now.Sub(l.failed) < l.c.cfg.Calm {
		l.fails++
		l.failed = now
	} else {
		l.fails, l.failed = 1, now
	}
	if l.fails >= inARow {
		l.mute = err
		l.lockedHealth()
	}
	select {
	case l.doubt <- struct{}{}:
	default: // it is being found out
	}
}

// ofChannel reports whether what a send failed by may be trouble of the whole channel.
func ofChannel(err error) bool {
	switch fault.ClassOf(err) {
	case fault.Unavailable, fault.Unknown, fault.Timeout, fault.Internal:
		return true
	}
	return false
}

// lookAfter finds out, whenever a send failed, how it stands with the channel, until ctx ends.
func (l *line) lookAfter(ctx context.Context) {
	for {
		select {
		case <-l.doubt:
		case <-ctx.Done():
			return
		}
		for pause := l.c.cfg.Pause; ; pause = min(2*pause, l.c.cfg.Longest) {
			err, wait := l.ask(ctx), pause
			if l.looked(err) {
				break
			}
			if needsPerson(err) {
				wait = l.c.cfg.Denied
			}
			if Wait(ctx, wait) != nil {
				return
			}
		}
	}
}

// ask asks the network who ombud is.
func (l *line) ask(ctx context.Context) error {
	a, err := l.ready()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.c.cfg.Check, fault.New(fault.Timeout, "the network did not answer within %s", l.c.cfg.Check))
	defer cancel()
	_, err = check(ctx, a)
	return err
}

// looked notes what the network said, and reports whether that is the end of it.
func (l *line) looked(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.fails == 0: // something has arrived meanwhile
		return true
	case err != nil:
		l.mute = err
		l.lockedHealth()
		return false
	case l.fails >= inARow && time.Since(l.failed) < l.c.cfg.Calm:
		return false
	case l.fails >= inARow:
		l.fails = 0
	}
	l.mute = nil
	l.lockedHealth()
	return true
}
