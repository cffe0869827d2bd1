package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ombud-run/ombud/internal/audit"
	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/guard"
	"github.com/ombud-run/ombud/internal/wire"
)

// confining is what starts programs and holds them.
type confining struct {
	launcher *confine.Launcher
	groups   *confine.Cgroups // nil: none can be made, noGroups says why
	noGroups error
	denials  denials
}

// secretHomes hold what lets a program be somebody else, in the operator's home. No
// job sees them, wherever it works.
var secretHomes = []string{
	"~/.ssh", "~/.gnupg", "~/.aws", "~/.kube", "~/.docker", "~/.azure", "~/.config/gcloud", "~/.config/gh", "~/.mozilla",
	"~/.config/google-chrome", "~/.config/chromium", "~/.password-store", "~/.local/share/keyrings", "~/.netrc", "~/.pgpass",
	"~/.git-credentials", "~/.npmrc", "~/.pypirc",
}

// enforcement and networks turn the words of the configuration into confine's.
func enforcement(word string) confine.Enforce {
	return map[string]confine.Enforce{config.EnforceBest: confine.EnforceBest, config.EnforceOff: confine.EnforceOff}[word] // else strict
}

func network(word string) confine.Network {
	return map[string]confine.Network{config.NetworkProxy: confine.NetProxy, config.NetworkAll: confine.NetAll}[word] // else none
}

// openConfine constructs the launcher, and ends what the jobs of a killed daemon of
// this instance left. The lock is held.
func (d *Daemon) openConfine(cfg config.Config) error {
	c := &d.confined
	c.denials = newDenials(time.Now)
	in := d.o.Instance
	options := confine.Options{
		Home: config.Home(), Hide: slices.Concat([]string{in.ConfigDir, in.StateDir, in.RuntimeDir}, vaultSecrets(d.o), secretHomes),
		Enforce: enforcement(cfg.Confine.Enforce), OnDenied: d.denied, Logger: d.log,
	}
	name, err := confine.CgroupNameOf(in.StateDir)
	if err == nil {
		c.groups, err = confine.OpenCgroups(confine.CgroupOptions{Name: name, Logger: d.log})
	}
	if err != nil {
		c.noGroups = err
		d.log.Info("jobs are held without cgroups", "reason", err)
	} else {
		options.Groups = c.groups
	}
	egress, err := guard.NewEgress(guard.EgressConfig{OnlyHosts: cfg.Tools.Web.AllowHosts, AllowPrivate: cfg.Tools.Web.AllowPrivate})
	if err != nil {
		return err
	}
	agents, err := harnessesReach(cfg)
	if err != nil {
		return err
	}
	options.Proxy = func(ln net.Listener, o confine.Owner) (stop func()) {
		may := egress
		if name, is := strings.CutPrefix(o.Subject, "harness:"); is {
			if r, is := agents[name]; is {
				may = d.agentEgress(r, o.Run)
			}
		}
		return guard.NewProxy(guard.ProxyConfig{Egress: may, OnRefused: func(target string, _ error) {
			d.denied(confine.Denial{Owner: o, What: "connect", Target: target, Count: 1})
		}}).Serve(ln)
	}
	c.launcher, err = confine.New(options)
	return err
}

// noEgress leads nowhere: no host has this name. Nil would be the public internet.
var noEgress = sync.OnceValue(func() *guard.Egress {
	e, err := guard.NewEgress(guard.EgressConfig{OnlyHosts: []string{"none.invalid"}})
	if err != nil {
		panic(err) // every test would see it
	}
	return e
})

// agentEgress is what a coding agent may reach in a run.
func (d *Daemon) agentEgress(r harnessReach, run string) *guard.Egress {
	reach := r.egress
	if way, lent := d.keys.Way(run); lent {
		reach = func() (*guard.Egress, error) { return r.held(way) }
	}
	e, err := reach()
	if err != nil {
		d.log.Error("a coding agent reaches nothing", "run", run, "error", err)
		return noEgress()
	}
	return e
}

// closeConfine ends every program. Nothing that acts runs any more.
func (d *Daemon) closeConfine(ctx context.Context) error {
	d.confined.launcher.Close()
	err := d.flushDenials(ctx, true)
	if d.confined.groups != nil {
		err = errors.Join(err, d.confined.groups.Close())
	}
	return err
}

// refusedMessage is what the log says of a refusal.
const refusedMessage = "a program was refused"

// deniedWithin bounds how long a job's report waits for the store.
const deniedWithin = 10 * time.Second

// denied records what a job was refused: an entry of its own in the audit log, or a
// count once there are many. Its target is in the log; the audit has it hidden, with
// a keyed hash, like every scope.
func (d *Daemon) denied(n confine.Denial) {
	d.log.Warn(refusedMessage, "subject", n.Owner.Subject, "tool", n.Owner.Tool, "run", n.Owner.Run, "what", n.What, "target", n.Target)
	if !d.confined.denials.count(n) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), deniedWithin)
	defer cancel()
	err := d.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		_, err := d.audit.AppendTx(ctx, tx, audit.Entry{
			Kind: "confine", Actor: "ombud", Subject: n.Owner.Subject, Tool: n.Owner.Tool, Run: n.Owner.Run, Step: n.Owner.Step,
			Scopes: []string{n.What + ":" + n.Target}, Outcome: "denied", Reason: n.What,
		})
		return err
	})
	if err != nil {
		d.confined.denials.owe(map[denialKey]int64{keyOf(n): 1})
		d.log.Error("record a refusal", "error", err)
	}
}

// flushDenials records the counts of those that got no entry of their own: of the
// hours before, or all.
func (d *Daemon) flushDenials(ctx context.Context, all bool) error {
	due := d.confined.denials.collect(all)
	if len(due) == 0 {
		return nil
	}
	err := d.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for key, n := range due {
			_, err := d.audit.AppendTx(ctx, tx, audit.Entry{
				Kind: "confine", Actor: "ombud", Subject: key.subject, Tool: key.tool, Outcome: "denied", Reason: "repeated", Count: n,
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		d.confined.denials.owe(due) // the next time
	}
	return err
}

// denialKey is what refusals of jobs are counted by.
type denialKey struct{ subject, tool string }

// denialsEach is how many refusals of one subject's tool get an entry of their own
// in an hour.
const denialsEach = 200

// denials keeps a program that tries everything, or one that is called over and
// over, from filling the audit log. The counts live in memory: a crash loses at most
// an hour's surplus.
type denials struct {
	mu   *sync.Mutex
	now  func() time.Time
	hour int64
	seen map[denialKey]int64
	due  map[denialKey]int64
}

func newDenials(now func() time.Time) denials {
	return denials{mu: &sync.Mutex{}, now: now, seen: map[denialKey]int64{}, due: map[denialKey]int64{}}
}

func keyOf(n confine.Denial) denialKey { return denialKey{n.Owner.Subject, n.Owner.Tool} }

// count notes a refusal and reports whether it gets an entry of its own.
func (r *denials) count(n confine.Denial) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roll()
	key := keyOf(n)
	r.seen[key]++
	return r.seen[key] <= denialsEach
}

// roll starts a new hour and makes the surplus of the last one due.
func (r *denials) roll() {
	if hour := r.now().Unix() / 3600; hour != r.hour {
		r.settle()
		r.hour = hour
	}
}

func (r *denials) settle() {
	for key, n := range r.seen {
		if n > denialsEach {
			r.due[key] += n - denialsEach
		}
	}
	clear(r.seen)
}

// owe notes those whose entry could not be written.
func (r *denials) owe(due map[denialKey]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, n := range due {
		r.due[key] += n
	}
}

// collect takes what is due, with what this hour has so far if it is to be all.
func (r *denials) collect(all bool) map[denialKey]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roll()
	if all {
		r.settle()
	}
	due := r.due
	r.due = map[denialKey]int64{}
	return due
}

// confinement says what is in force for the programs of jobs.
func (d *Daemon) confinement() []wire.Check {
	r := d.confined.launcher.Report()
	walls := wire.Check{ID: "confinement", Status: "ok", Detail: walls(r)}
	switch {
	case r.Enforce == confine.EnforceOff:
		walls.Status, walls.Hint = "warn", "confine.enforce: strict lets no program run without walls"
	case !r.Confined && r.Enforce == confine.EnforceStrict:
		walls.Status = "fail"
		walls.Hint = "no program runs here. confine.enforce: best runs them with what there is, off without walls; better is a kernel with Landlock"
		if runtime.GOOS != "linux" {
			walls.Hint = "no program runs here. confine.enforce: off runs them without walls; list only programs you trust in tools.shell.allow"
		}
	case !r.Confined:
		walls.Status, walls.Hint = "warn", "confine.enforce: strict lets no program run without walls; list only programs you trust in tools.shell.allow"
	case len(r.Missing) > 0 || !r.Observed:
		walls.Status, walls.Hint = "warn", "a newer kernel, or leave to make namespaces, closes this"
	}
	held := wire.Check{ID: "confinement.children", Status: "ok", Detail: "what a program leaves is found and ended by " + r.Holding}
	if d.confined.groups != nil && r.Groups {
		held.Detail += ": " + d.confined.groups.Kind()
	} else if d.confined.noGroups != nil {
		held.Detail += fmt.Sprintf("; no cgroup: %v", d.confined.noGroups)
	}
	net := wire.Check{ID: "confinement.network", Status: "ok", Detail: "programs of shell.exec have no network"}
	switch network(d.o.Config.Config.Tools.Shell.Network) {
	case confine.NetProxy:
		net.Detail = "programs of shell.exec reach what the fetch tool may reach (tools.web), through ombud's proxy"
		if !r.Namespaces {
			net.Status, net.Hint = "fail", "the proxy needs a network namespace, so these programs do not run; tools.shell.network: none or all needs none"
		}
	case confine.NetAll:
		net.Status, net.Detail = "warn", "programs of shell.exec have the network of this machine"
		net.Hint = "tools.shell.network: proxy lets them reach what the fetch tool may reach"
	}
	if !r.Confined && network(d.o.Config.Config.Tools.Shell.Network) == confine.NetNone && r.Enforce != confine.EnforceStrict && !r.Seccomp {
		net.Status, net.Detail, net.Hint = "warn", "programs of shell.exec have the network of this machine: nothing keeps it from them", ""
	}
	return []wire.Check{walls, held, net}
}

func walls(r confine.Report) string {
	if r.Enforce == confine.EnforceOff {
		return "off: programs are not confined"
	}
	var parts []string
	add := func(has bool, what string) {
		if has {
			parts = append(parts, what)
		}
	}
	add(r.Landlock > 0, fmt.Sprintf("Landlock ABI %d", r.Landlock))
	add(r.Seccomp, "seccomp")
	add(r.Namespaces, "namespaces")
	text := r.Enforce.String() + ": "
	if len(parts) == 0 {
		text += "not confined on " + r.System
	} else {
		text += strings.Join(parts, ", ")
	}
	if r.Confined && r.Observed {
		text += "; what is refused is in the audit log"
	} else if r.Confined {
		text += "; what is refused is not seen"
	}
	if len(r.Missing) > 0 {
		text += ". Missing: " + strings.Join(r.Missing, "; ")
	}
	return text
}
