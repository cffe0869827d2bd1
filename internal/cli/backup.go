package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ombud-run/ombud/internal/config"
	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func (a *app) backupCmd() *cobra.Command {
	var req wire.BackupCreateRequest
	c := a.command(spec{
		use:   "backup [FILE]",
		short: "write the whole instance into one file",
		long: `Writes store, configuration and vault file as of one instant, while the daemon goes
on or while none runs. The file has its name when it was flushed, read back and
verified. It is a tar archive; what the store keeps sealed is sealed in it.

The raw key is NOT in it unless you say --include-key: without the key, its
passphrase or its recovery key the backup is of no use, so keep that apart. With
--include-key everybody who has the file can read everything in it.`,
		example: "ombud backup /mnt/stick/ombud.ombud-backup\nombud backup --to /mnt/nas/ombud --keep 7\nombud backup verify /mnt/stick/ombud.ombud-backup",
		args:    cobra.MaximumNArgs(1),
	}, func(ctx context.Context, args []string) error {
		if (len(args) == 0) == (req.Dir == "") {
			return fault.New(fault.Usage, "say where the backup goes: a FILE, or --to DIR").WithHint("ombud backup --help")
		}
		if req.Keep != 0 && req.Dir == "" {
			return fault.New(fault.Usage, "--keep is for backups in a directory: --to DIR")
		}
		place := &req.Dir
		if len(args) > 0 {
			place, req.Path = &req.Path, args[0]
		}
		abs, err := filepath.Abs(*place)
		if err != nil {
			return err
		}
		*place = abs
		bar := a.newBar()
		res, err := a.client.BackupCreate(ctx, req, bar.note)
		if errors.Is(err, wire.ErrNoDaemon) {
			res, err = a.backupOffline(ctx, req, bar)
		}
		bar.end()
		if err != nil {
			return err
		}
		return a.show("backup/1", res, func(p *page) { backupPage(p, res) })
	})
	c.Flags().StringVar(&req.Dir, "to", "", "make it in this `directory`, named by instance and time")
	c.Flags().IntVar(&req.Keep, "keep", 0, "with --to: then remove all but the newest `N` of this instance")
	c.Flags().BoolVar(&req.Force, "force", false, "replace the file if it is there")
	c.Flags().BoolVar(&req.IncludeKey, "include-key", false, "put the raw key in: whoever has the file can read everything")
	c.AddCommand(a.backupVerifyCmd())
	return c
}

func (a *app) backupOffline(ctx context.Context, req wire.BackupCreateRequest, b *bar) (wire.BackupResult, error) {
	if a.roof.Backup == nil {
		return wire.BackupResult{}, notHere("write a backup")
	}
	if !exists(a.where.StateDir) {
		return wire.BackupResult{}, fault.New(fault.NotFound, "there is no instance %s: %s does not exist", a.where.Name, a.where.StateDir)
	}
	p, err := a.place()
	if err != nil {
		return wire.BackupResult{}, err
	}
	return a.roof.Backup(ctx, p, req, b.note)
}

func backupPage(p *page, r wire.BackupResult) {
	p.line("%s, %s", p.good("ok"), r.Path)
	p.line("%s", p.faint(fmt.Sprintf("%s as of %s, event %d; read back and verified, in %s", size(r.Bytes), p.clock(r.Backup.CreatedAt), r.Backup.Head, span(micros(r.DurationUS)))))
	if r.Backup.KeyIncluded {
		p.line("%s", p.warn("the raw key is in it: who has this file can read everything"))
	} else {
		p.line("%s", p.faint("the raw key is not in it: keep the key, its passphrase or its recovery key apart"))
	}
	for _, old := range r.Removed {
		p.line("%s", p.faint("removed "+old))
	}
}

func (a *app) backupVerifyCmd() *cobra.Command {
	var quick bool
	var scratch string
	c := a.command(spec{
		use:   "verify FILE",
		short: "check a backup from end to end, without touching the instance",
		long: `Checks every hash and the signature, unpacks the store into a directory that is
removed, lets SQLite check it, and verifies the audit log and, where the key is here,
what every run came to. Exits 5 and names the part that does not hold. --quick
checks hashes and signature alone and needs no room.`,
		example: "ombud backup verify ombud.ombud-backup\nombud backup verify --quick ombud.ombud-backup",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		if a.roof.VerifyBackup == nil {
			return notHere("check a backup")
		}
		p, err := a.place()
		if err != nil {
			return err
		}
		if scratch == "" {
			scratch = a.where.CacheDir
		}
		bar := a.newBar()
		res, err := a.roof.VerifyBackup(ctx, p, args[0], scratch, quick, bar.note)
		bar.end()
		if err != nil {
			return err
		}
		return a.show("backup-verify/1", res, func(p *page) {
			p.line("%s, %s", p.good("ok"), res.Path)
			p.field("instance", res.Backup.Instance)
			p.field("as of", fmt.Sprintf("%s, event %d", p.clock(res.Backup.CreatedAt), res.Backup.Head))
			p.field("store", fmt.Sprintf("%s, schema %d, %s", res.Backup.Store, res.Backup.Schema, size(res.Bytes)))
			p.field("written by", res.Backup.Ombud)
			p.field("signed by", res.Backup.PublicKey)
			key := "not in it"
			if res.Backup.KeyIncluded {
				key = p.warn("in it: who has the file can read everything")
			}
			p.field("raw key", key)
			for _, check := range res.Checks {
				p.line("%s%s%s", p.good(pad(check.Status, 6)), pad(check.ID, 17), check.Detail)
			}
		})
	})
	c.Flags().BoolVar(&quick, "quick", false, "only the file: hashes and signature")
	c.Flags().StringVar(&scratch, "scratch", "", "unpack below this `directory` (default the cache of the instance)")
	return c
}

func (a *app) restoreCmd() *cobra.Command {
	var keyFile string
	var replace bool
	c := a.command(spec{
		use:   "restore FILE",
		short: "put an instance back from a backup, held",
		long: `Restores into an instance that is empty: on a new machine, or under another name
with --instance. Everything is unpacked and verified beside what is there and put in
place at once; after an error nothing has changed. No daemon may be running.

The restored instance is held: it sends nothing, fires no timer, takes no message in
and goes on with nothing, until "ombud restore release" has shown you what would
happen and you let go. Reading works.

--replace moves the store that is there into a directory beside it, and never
deletes it.`,
		example: "ombud restore ombud.ombud-backup\nombud restore ombud.ombud-backup --instance trial\nombud restore release",
		args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, args []string) error {
		if a.roof.Restore == nil {
			return notHere("restore a backup")
		}
		p, err := a.place()
		if err != nil {
			return err
		}
		bar := a.newBar()
		res, err := a.roof.Restore(ctx, p, RestoreOptions{
			File: args[0], KeyFile: keyFile, Replace: replace, Load: func(path string) (*config.Loaded, error) { return a.loadConfigFile(path) }, Note: bar.note,
		})
		bar.end()
		if err != nil {
			return err
		}
		return a.show("restore/1", res, func(p *page) {
			p.line("%s, instance %s as of %s", p.good("restored"), a.where.Name, p.clock(res.Backup.CreatedAt))
			p.field("what was", res.Replaced)
			p.field("config", res.Config)
			p.line("%s", p.warn("it is held: nothing is sent, fired or done"))
			p.line("ombud restore release shows what would happen, and lets go")
		})
	})
	c.Flags().StringVar(&keyFile, "key-file", "", "the key `file` of the backup, if it is neither in it nor in its place")
	c.Flags().BoolVar(&replace, "replace", false, "move the store that is there aside")
	c.AddCommand(a.releaseCmd())
	return c
}

// RestoreOptions is what the roof needs to restore.
type RestoreOptions struct {
	File    string
	KeyFile string
	Replace bool
	Load    func(path string) (*config.Loaded, error)
	Note    func(wire.BackupProgress) error
}

func (a *app) releaseCmd() *cobra.Command {
	var req wire.RestoreReleaseRequest
	var yes bool
	c := a.command(spec{
		use:   "release",
		short: "show what a restored instance would do, and let it go",
		long: `Lists what would happen: replies that would be sent, timers that are overdue, work
that would go on. Replies may have been sent, and work may have been done, after the
backup was made: that is for you to know. What you do not want can be left out.`,
		example: "ombud restore release\nombud restore release --drop-outbox --yes",
	}, func(ctx context.Context, _ []string) error {
		if _, err := a.ensure(ctx); err != nil {
			return err
		}
		work, err := a.client.RestorePending(ctx)
		if err != nil {
			return err
		}
		if work.Held == nil {
			return fault.New(fault.Conflict, "instance %s is not held", a.where.Name)
		}
		if !yes {
			if err := a.confirmRelease(work); err != nil {
				return err
			}
		}
		req.Restore = work.Held.Restore
		res, err := a.client.RestoreRelease(ctx, req)
		if err != nil {
			return err
		}
		return a.show("restore-release/1", res, func(p *page) {
			p.line("%s", p.good("let go"))
			for _, left := range []struct {
				n    int
				what string
			}{{res.Dropped, "reply"}, {res.Skipped, "timer"}, {res.Cancelled, "run"}} {
				if left.n > 0 {
					p.line("%s", p.faint(plural(int64(left.n), left.what)+" left out"))
				}
			}
		})
	})
	c.Flags().BoolVar(&yes, "yes", false, "let go without asking")
	c.Flags().BoolVar(&req.DropReplies, "drop-outbox", false, "do not send what was waiting to be sent")
	c.Flags().BoolVar(&req.SkipOverdue, "skip-overdue", false, "do not fire timers that are overdue")
	c.Flags().BoolVar(&req.CancelRuns, "cancel-runs", false, "do not go on with work that was under way")
	return c
}

// confirmRelease shows what would happen and asks. Where nobody can be asked it is
// all that is done.
func (a *app) confirmRelease(work wire.PendingWork) error {
	if err := a.show("restore-pending/1", work, func(p *page) { pendingPage(p, work) }); err != nil {
		return err
	}
	held := fault.New(fault.Waiting, "nothing was let go").WithHint("ombud restore release --yes lets go; see --help for what can be left out")
	if a.json || !isTerminal(a.stdin) {
		return held
	}
	fmt.Fprint(a.stderr, "let go? [y/N] ")
	line, err := bufio.NewReader(a.stdin).ReadString('\n')
	if answer := strings.ToLower(strings.TrimSpace(line)); err != nil || answer != "y" && answer != "yes" {
		return held
	}
	return nil
}

func pendingPage(p *page, w wire.PendingWork) {
	p.line("restored from a backup of %s; if it is let go:", p.clock(w.Held.BackupAt))
	p.line("")
	var order []string
	byConversation := map[string][]wire.PendingReply{}
	for _, r := range w.Replies {
		if byConversation[r.Conversation] == nil {
			order = append(order, r.Conversation)
		}
		byConversation[r.Conversation] = append(byConversation[r.Conversation], r)
	}
	for _, c := range order {
		list := byConversation[c]
		p.line("%s to %s would be sent", plural(int64(len(list)), "reply"), p.strong(oneLine(c)))
		for _, r := range list {
			doubt := ""
			if r.InDoubt {
				doubt = p.warn(" (it was being sent: it may have arrived)")
			}
			p.line("  said at %s: %s%s", p.clock(r.QueuedAt), short(r.Text, 70), doubt)
		}
	}
	if n := len(w.Timers); n > 0 {
		p.line("%s would fire at once", plural(int64(n), "overdue timer"))
		for _, t := range w.Timers {
			says := t.Text
			if says == "" {
				says = t.Kind
			}
			p.line("  due %s: %s", p.clock(t.At), short(says, 70))
		}
	}
	if w.Later > 0 {
		p.line("%s would fire at their time", plural(int64(w.Later), "timer"))
	}
	if n := len(w.Runs); n > 0 {
		p.line("%s would go on", plural(int64(n), "run"))
		for _, r := range w.Runs {
			doubt := ""
			if r.InDoubt > 0 {
				doubt = p.warn(fmt.Sprintf(" (in doubt: %s may have had an effect)", plural(int64(r.InDoubt), "step")))
			}
			p.line("  %s %s %s, from %s%s", r.ID, r.Kind, oneLine(r.Name), p.clock(r.Created), doubt)
		}
	}
	if len(w.Replies)+len(w.Timers)+w.Later+len(w.Runs) == 0 {
		p.line("nothing: no reply waits, no timer is armed, no work is under way")
	}
	if w.Asked > 0 {
		p.line("%s for you: ombud inbox", plural(int64(w.Asked), "question"))
	}
	p.line("")
	p.line("%s", p.faint("left out with --drop-outbox, --skip-overdue, --cancel-runs"))
}

// bar shows how far something has come, on a terminal.
type bar struct {
	a    *app
	on   bool
	wide int
	last time.Time
}

func (a *app) newBar() *bar { return &bar{a: a, on: !a.json && isTerminal(a.stderr)} }

func (b *bar) note(n wire.BackupProgress) error {
	if !b.on || b.wide > 0 && n.Done > 0 && n.Done < n.Total && time.Since(b.last) < 100*time.Millisecond {
		return nil
	}
	b.last = time.Now()
	text := n.Phase
	if n.Total > 0 {
		text = fmt.Sprintf("%s %d%% of %s", n.Phase, min(100, 100*n.Done/n.Total), size(n.Total))
	}
	fmt.Fprintf(b.a.stderr, "\r%s", pad(text, b.wide+1))
	b.wide = max(b.wide, len(text))
	return nil
}

// end clears the line.
func (b *bar) end() {
	if b.wide > 0 {
		fmt.Fprintf(b.a.stderr, "\r%s\r", strings.Repeat(" ", b.wide+1))
	}
}
