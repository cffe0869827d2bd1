package slack

import (
	"cmp"
	"context"
	"net/url"
	"sync"
	"time"
)

// people remembers names. One that could not be had is asked for again after a minute, so
// that a slow API delays one message and not each.
type people struct {
	api *api
	now func() time.Time

	mu    sync.Mutex
	names map[string]known
}

type known struct {
	name  string
	until time.Time
}

const (
	maxNames  = 4000
	nameKept  = time.Hour
	nameFails = time.Minute
)

func newPeople(a *api, now func() time.Time) *people {
	return &people{api: a, now: now, names: map[string]known{}}
}

// within returns look-ups that end with ctx.
func (p *people) within(ctx context.Context) names {
	return names{
		user: func(id string) string { return p.get(ctx, id, p.user) },
		room: func(id string) string { return p.get(ctx, id, p.room) },
	}
}

func (p *people) get(ctx context.Context, id string, ask func(context.Context, string) (string, error)) string {
	if !isID(id) {
		return ""
	}
	p.mu.Lock()
	k, ok := p.names[id]
	p.mu.Unlock()
	if ok && p.now().Before(k.until) || ctx.Err() != nil {
		return k.name
	}
	name, err := ask(ctx, id)
	next := known{line(name), p.now().Add(nameKept)}
	if err != nil {
		next = known{k.name, p.now().Add(nameFails)}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.names) >= maxNames {
		clear(p.names)
	}
	p.names[id] = next
	return next.name
}

func (p *people) user(ctx context.Context, id string) (string, error) {
	var a struct {
		User struct {
			Name     string `json:"name"`
			RealName string `json:"real_name"`
			Profile  struct {
				DisplayName string `json:"display_name"`
			} `json:"profile"`
		} `json:"user"`
	}
	err := p.api.call(ctx, "users.info", partBot, url.Values{"user": {id}}, &a)
	return cmp.Or(a.User.Profile.DisplayName, a.User.RealName, a.User.Name), err
}

func (p *people) room(ctx context.Context, id string) (string, error) {
	var a struct {
		Channel struct {
			Name string `json:"name"`
		} `json:"channel"`
	}
	err := p.api.call(ctx, "conversations.info", partBot, url.Values{"channel": {id}}, &a)
	return a.Channel.Name, err
}
