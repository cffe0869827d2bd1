package discord

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
)

// Bounds of what is kept of guilds and channels; over them it is forgotten and asked for.
const (
	maxRooms  = 20_000
	maxGuilds = 500
)

// forget is how soon a channel that could not be looked up is looked up again.
const forget = 5 * time.Minute

// places are the guilds and channels the Gateway told of, and those that were asked for.
type places struct {
	api *api

	mu     sync.Mutex
	rooms  map[string]room
	failed map[string]time.Time         // channels that are not there for ombud → when to ask again
	noName map[string]time.Time         // channels whose title was not to be had → when to ask again
	roles  map[string]map[string]string // guild → id → name
	mine   map[string]map[string]bool   // guild → those of ombud
}

func newPlaces(a *api) *places {
	p := &places{api: a}
	p.reset()
	return p
}

func (p *places) reset() {
	p.rooms, p.failed, p.noName = map[string]room{}, map[string]time.Time{}, map[string]time.Time{}
	p.roles, p.mine = map[string]map[string]string{}, map[string]map[string]bool{}
}

// roleName is the name of a role, "" if it is not known.
func (p *places) roleName(guild, id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.roles[guild][id]
}

// roomName is the name of a channel of a guild, "" if it is not known.
func (p *places) roomName(guild, id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.rooms[id]; r.GuildID == guild {
		return r.Name
	}
	return ""
}

// isMine reports whether ombud has a role.
func (p *places) isMine(guild, role string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mine[guild][role]
}

// room returns a channel, asking for it if nobody told of it. An error is Discord's; one
// that is final is NotFound or Denied.
func (p *places) room(ctx context.Context, id string) (room, error) {
	p.mu.Lock()
	r, ok := p.rooms[id]
	again, failed := p.failed[id]
	p.mu.Unlock()
	if ok {
		return r, nil
	}
	if failed && time.Now().Before(again) {
		return room{}, fault.New(fault.NotFound, "channel %s could not be looked up", id)
	}
	if err := p.api.call(ctx, http.MethodGet, "/channels/"+id, nil, &r); err != nil {
		if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied) {
			p.put(func() { p.failed[id] = time.Now().Add(forget) })
		}
		return room{}, err
	}
	r.ID = id
	p.put(func() { p.rooms[id] = r })
	return r, nil
}

// titleTime is how long a message may wait for the name of its channel.
const titleTime = 3 * time.Second

// title is the name of a channel, "" if it is not to be had now.
func (p *places) title(ctx context.Context, id string) string {
	p.mu.Lock()
	again := p.noName[id]
	_, ok := p.rooms[id]
	p.mu.Unlock()
	if !ok && time.Now().Before(again) {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, titleTime)
	defer cancel()
	r, err := p.room(ctx, id)
	if err != nil {
		p.put(func() { p.noName[id] = time.Now().Add(forget) })
	}
	return r.Name
}

func (p *places) put(fn func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rooms) > maxRooms || len(p.failed) > maxRooms || len(p.noName) > maxRooms || len(p.roles) > maxGuilds {
		p.reset()
	}
	fn()
}

// learn keeps what GUILD_CREATE tells.
func (p *places) learn(s server, me string) {
	p.put(func() {
		p.roles[s.ID], p.mine[s.ID] = map[string]string{}, map[string]bool{}
		for _, r := range s.Roles {
			p.lockedRole(s.ID, r, me)
		}
		for _, m := range s.Members {
			p.lockedMember(s.ID, m, me)
		}
		for _, list := range [][]room{s.Channels, s.Threads} {
			for _, r := range list[:min(len(list), maxRooms/2)] {
				r.GuildID = s.ID // within their guild they do not name it
				p.rooms[r.ID] = r
			}
		}
	})
}

func (p *places) lockedRole(guild string, r role, me string) {
	if p.roles[guild] == nil {
		p.roles[guild] = map[string]string{}
	}
	p.roles[guild][r.ID] = r.Name
	if r.Tags != nil && r.Tags.BotID == me {
		p.lockedMine(guild, r.ID)
	}
}

func (p *places) lockedMine(guild, role string) {
	if p.mine[guild] == nil {
		p.mine[guild] = map[string]bool{}
	}
	p.mine[guild][role] = true
}

// lockedMember keeps the roles of ombud itself.
func (p *places) lockedMember(guild string, m member, me string) {
	if m.User == nil || m.User.ID != me {
		return
	}
	for _, r := range m.Roles {
		p.lockedMine(guild, r)
	}
}

// role keeps a role that was made or changed.
func (p *places) role(e roleEvent, me string) {
	p.put(func() { p.lockedRole(e.GuildID, e.Role, me) })
}

// member keeps the roles of ombud when they change; among them is the managed one.
func (p *places) member(e memberEvent, me string) {
	if e.User == nil || e.User.ID != me {
		return
	}
	p.put(func() {
		p.mine[e.GuildID] = map[string]bool{}
		p.lockedMember(e.GuildID, e.member, me)
	})
}

// moved keeps a channel that was made or changed.
func (p *places) moved(r room) {
	if snowflake(r.ID) {
		p.put(func() { delete(p.failed, r.ID); delete(p.noName, r.ID); p.rooms[r.ID] = r })
	}
}

func (p *places) gone(r room) {
	p.put(func() { delete(p.rooms, r.ID) })
}
