package daemon

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/wire"
)

// doctor looks at what a running daemon depends on. What can be seen from outside,
// such as file modes, is looked at by the command itself.
func (d *Daemon) doctor(ctx context.Context) []wire.Check {
	var out []wire.Check
	add := func(id, status, detail, hint string) {
		out = append(out, wire.Check{ID: id, Status: status, Detail: detail, Hint: hint})
	}

	if held, is := d.checkHeld(); is {
		out = append(out, held)
	}
	out = append(out, d.checkBackup(ctx))
	begun := time.Now()
	err := d.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		return db.SetMeta(ctx, tx, "doctor.last", fmt.Sprint(tx.Now()))
	})
	if err != nil {
		add("store.writes", "fail", err.Error(), "make room on the disk, or see ombud logs")
	} else {
		add("store.writes", "ok", fmt.Sprintf("%s, a durable commit took %s", d.db.Kind(), time.Since(begun).Round(10*time.Microsecond)), "")
	}
	st := d.db.Stats()
	if st.WALBytes > 64<<20 {
		add("store.wal", "warn", fmt.Sprintf("the write-ahead log has %d MiB", st.WALBytes>>20), "a read stays open: restart the daemon")
	} else {
		add("store.wal", "ok", fmt.Sprintf("the write-ahead log has %d KiB", st.WALBytes>>10), "")
	}
	out = append(out, d.vaultCheck())
	add("model.main", "ok", d.models.main.wire().Provider+"/"+d.models.main.wire().Model+": "+d.models.main.why, "")
	out = append(out, d.secretChecks(ctx)...)
	if q := d.tools.Quarantined(); len(q) > 0 {
		var names []string
		for _, t := range q {
			names = append(names, t.Name)
		}
		add("tools.quarantine", "warn", strings.Join(names, ", "), "ombud tools says why")
	} else {
		add("tools.quarantine", "ok", fmt.Sprintf("%d tools, none in quarantine", len(d.tools.List())), "")
	}
	out = append(out, d.processCheck(), d.serverCheck(), d.recipeCheck(), d.signedCheck(), d.worktreeCheck(ctx))
	if n := d.act.Abandoned(); n > 0 {
		add("tools.abandoned", "warn", fmt.Sprintf("%d calls run on though their time is over", n), "restart the daemon to be rid of them")
	} else {
		add("tools.abandoned", "ok", "no call ignores its timeout", "")
	}
	out = append(out, d.confinement()...)
	out = append(out, d.checkListener(ctx)...)
	if _, err := os.Stat("/etc/localtime"); err != nil && time.Local.String() == "Local" {
		add("clock.zone", "warn", "the machine has no time zone set", "link /etc/localtime")
	} else {
		add("clock.zone", "ok", "local time is "+time.Now().Format("15:04 MST (-07:00)"), "")
	}
	add("audit.anchor", "warn", "no outside anchor: a store that is rolled back as a whole is not noticed", "keep exports of the audit log elsewhere: ombud audit export")
	return out
}
