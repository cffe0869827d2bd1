package db

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ombud-run/ombud/internal/fault"
)

// unconnected says in one line why there is no connection to PostgreSQL, and what to do
// about it. The driver tells each address it tried, and the way with and without TLS.
func unconnected(e *pgconn.ConnectError) error {
	out := &fault.Error{Class: fault.Unavailable, Err: e}
	where := net.JoinHostPort(e.Config.Host, strconv.Itoa(int(e.Config.Port)))
	said, answered := errors.AsType[*pgconn.PgError](e)
	if !answered {
		out.Msg = fmt.Sprintf("store: PostgreSQL at %s cannot be reached: %s", where, unreachable(e))
		return out.WithHint("see that the server runs, and that store: names its address")
	}
	out.Msg = fmt.Sprintf("store: PostgreSQL at %s says: %s (%s)", where, said.Message, said.Code)
	switch {
	case said.Code == "3D000": // no such database
		out.Class = fault.Config
		return out.WithHint("make it there: createdb --owner=%s %s", e.Config.User, e.Config.Database)
	case strings.HasPrefix(said.Code, "28"): // authorisation
		out.Class = fault.Config
		return out.WithHint("see that store: has the user and password, and that pg_hba.conf lets them in")
	}
	return out
}

// unreachable is the first cause that says something to a person.
func unreachable(err error) string {
	var lookup *net.DNSError
	var network *net.OpError
	switch {
	case errors.As(err, &lookup):
		return lookup.Err + " " + lookup.Name
	case errors.Is(err, context.DeadlineExceeded), pgconn.Timeout(err):
		return "it did not answer in time"
	case errors.As(err, &network):
		return network.Err.Error()
	}
	return strings.Join(strings.Fields(errors.Unwrap(err).Error()), " ")
}
