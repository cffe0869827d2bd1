package delegate

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/confine"
	"github.com/ombud-run/ombud/internal/supervise"
)

// The bounds of a check.
const (
	checkTime   = 10 * time.Minute
	checkOutput = 4 << 10
)

// Cache is a directory of the operator's toolchains that checks read and never change.
type Cache struct {
	Variable string // by which a toolchain is told of it
	Dir      string // absolute
}

// offline tells toolchains not to ask the network for what is in no cache, so that they say
// at once what is missing.
var offline = []string{"GOPROXY=off", "CARGO_NET_OFFLINE=true", "npm_config_offline=true", "PIP_NO_INDEX=1"}

// checkEnv is the environment of a check: what a toolchain writes goes to home, what it has
// downloaded for the operator is read where it is.
func (s *Service) checkEnv(home string) (env, read, hide []string) {
	env = []string{"PATH=" + s.cfg.Path, "HOME=" + home, "LC_ALL=C.UTF-8", "TERM=dumb", "CI=true"}
	for _, c := range s.cfg.Caches {
		env, read = append(env, c.Variable+"="+c.Dir), append(read, c.Dir)
		hide = append(hide, filepath.Join(c.Dir, "credentials"), filepath.Join(c.Dir, "credentials.toml")) // cargo's
	}
	if s.cfg.CheckNetwork == confine.NetNone {
		env = append(env, offline...)
	}
	return env, read, hide
}

// check1 runs one command where a delegation wrote, behind the same walls.
func (s *Service) check1(ctx context.Context, w *work, command string) Check {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	out := &supervise.Tail{Most: checkOutput}
	tree := w.x.Body.Tree
	dir, err := tree.place()
	if err != nil {
		return Check{Command: command, How: "it did not run: " + err.Error()}
	}
	home := s.checksOf(w.h, w.x.ID) // what a compiler keeps is kept from one check of a session to its next, and no session forges the checks of another
	if err := os.MkdirAll(home, 0o700); err != nil {
		return Check{Command: command, How: "it did not run: " + err.Error()}
	}
	env, caches, hide := s.checkEnv(home)
	p := confine.ShellProfile(tree.Path)
	p.Hide = append(p.Hide, hide...)
	p.Name, p.Write, p.Read, p.Network = "check", append(p.Write, home), slices.Concat(p.Read, caches, []string{tree.Common}), s.cfg.CheckNetwork
	j, err := s.Launcher.Start(ctx, confine.Spec{
		Path: s.cfg.Shell, Args: []string{"sh", "-c", command}, Dir: dir, Stdout: out, Stderr: out, Profile: p, Owner: w.owner, Env: env,
	})
	if err != nil {
		return Check{Command: command, How: "it did not run: " + err.Error()}
	}
	select {
	case <-j.Done():
	case <-ctx.Done():
		j.Stop()
	}
	exit, err := j.Wait()
	c := Check{Command: command, How: exit.String(), OK: err == nil && exit.Code == 0 && exit.Signal == "", Output: strings.ToValidUTF8(strings.TrimSpace(out.String()), "\uFFFD")}
	switch {
	case ctx.Err() != nil:
		c.OK, c.How = false, "it did not end within "+checkTime.String()
	case err != nil:
		c.How = err.Error()
	}
	if !c.OK && s.cfg.CheckNetwork == confine.NetNone && wantsNetwork.MatchString(c.Output) {
		w.note("the check %q seems to have failed for want of a network, which checks have none of: get what it needs into the caches of your toolchains first, or set delegate.checks.network: proxy", command)
	}
	return c
}

// wantsNetwork is what programs say that have no network.
var wantsNetwork = regexp.MustCompile(`(?i)GOPROXY=off|no such host|could ?n.t resolve|could not resolve|temporary failure in name resolution|network is unreachable|` +
	`ENOTFOUND|EAI_AGAIN|ENETUNREACH|ENOTCACHED|name or service not known|dial tcp|--offline|offline mode|PIP_NO_INDEX|no matching distribution|failed to establish a new connection`)
