//go:build unix

package db_test

import (
	"cmp"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/db/dbtest"
	"github.com/ombud-run/ombud/internal/fault"
)

// TestWhyThereIsNoConnectionIsALine asks for what a person may have written wrong.
func TestWhyThereIsNoConnectionIsALine(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	there, err := url.Parse(dbtest.Options(t, dbtest.KindPostgres).DSN)
	if err != nil {
		t.Fatal(err)
	}
	other := func(database, user string) string {
		u, q := *there, there.Query()
		u.Path = cmp.Or(database, u.Path)
		q.Set("user", cmp.Or(user, q.Get("user")))
		u.RawQuery = q.Encode()
		return u.String()
	}
	for _, c := range []struct {
		name, dsn, says, hint string
		class                 fault.Class
	}{
		{"nobody listens", "postgres://x@" + closed + "/x", "cannot be reached: connect: connection refused", "see that the server runs", fault.Unavailable},
		{"no such host", "postgres://x@nowhere.invalid/x", "nowhere.invalid", "see that the server runs", fault.Unavailable},
		{"no such database", other("/nowhere", ""), `database "nowhere" does not exist (3D000)`, "createdb --owner=", fault.Config},
		{"no such user", other("", "nobody-here"), `role "nobody-here" does not exist (28000)`, "user and password", fault.Config},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := db.TakeSeat(t.Context(), db.SeatOptions{DSN: c.dsn, Home: "a", Name: "a"})
			if err == nil || strings.ContainsAny(err.Error(), "\n\t") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
			if !fault.Is(err, c.class) || !strings.Contains(fault.HintOf(err), c.hint) {
				t.Errorf("%s, %q", fault.ClassOf(err), fault.HintOf(err))
			}
		})
	}
}
