package db

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"hash"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/ombud-run/ombud/internal/failpoint"
	"github.com/ombud-run/ombud/internal/fault"
)

// mover is one process's part of a move.
type mover struct {
	snap   *Snapshot
	seat   *Seat
	conn   *pgx.Conn
	report func(table string, rows int64)
}

// key returns the columns of a table's primary key, in their order in it.
func (m *mover) key(ctx context.Context, table string) ([]string, error) {
	rows, err := m.snap.s.conn.QueryContext(ctx, "SELECT name FROM pragma_table_info($1) WHERE pk > 0 ORDER BY pk", table)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err below tells what went wrong
	var key []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		key = append(key, name)
	}
	if len(key) == 0 {
		return nil, errors.Join(rows.Err(), fault.New(fault.Internal, "table %s has no key", table))
	}
	return key, rows.Err()
}

// selectAll reads a table in the order of its key.
func (m *mover) selectAll(ctx context.Context, t Table) (string, error) {
	key, err := m.key(ctx, t.Name)
	return "SELECT " + quoted(t.Columns) + " FROM " + quoted([]string{t.Name}) + " WHERE " + ownRows(t.Name) + " ORDER BY " + quoted(key), err
}

// copy brings the rows of a table that are not there yet.
func (m *mover) copy(ctx context.Context, t Table) error {
	var have int64
	var note string
	err := m.conn.QueryRow(ctx, "SELECT rows, note FROM "+moveTable+" WHERE name = $1", t.Name).Scan(&have, &note)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if note == "done" {
		return nil
	}
	query, err := m.selectAll(ctx, t)
	if err != nil {
		return err
	}
	var piece [][]any
	var size int
	err = m.eachOfSource(ctx, query+" LIMIT -1 OFFSET "+strconv.FormatInt(have, 10), len(t.Columns), func(row []any) error {
		own := slices.Clone(row)
		for i, v := range own {
			switch v := v.(type) {
			case []byte:
				own[i] = append([]byte{}, v...)
				size += len(v)
			case string:
				size += len(v)
			}
			size += 8
		}
		if piece = append(piece, own); size < movePiece {
			return nil
		}
		have += int64(len(piece))
		err := m.commit(ctx, t, piece, have, "")
		piece, size = piece[:0], 0
		return err
	})
	if err != nil {
		return err
	}
	return m.commit(ctx, t, piece, have+int64(len(piece)), "done")
}

// eachOfSource gives the rows of a query on the source, good until fn returns.
func (m *mover) eachOfSource(ctx context.Context, query string, columns int, fn func(row []any) error) error {
	rows, err := m.snap.s.conn.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err below tells what went wrong
	row, into := make([]any, columns), make([]any, columns)
	for i := range row {
		into[i] = &row[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		for i, v := range row {
			if b, is := v.([]byte); is && b == nil { // how SQLite's driver gives an empty one
				row[i] = []byte{}
			}
		}
		if err := fn(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// commit puts a piece into the target together with how many rows are there then.
func (m *mover) commit(ctx context.Context, t Table, piece [][]any, have int64, note string) error {
	err := m.inTx(ctx, func(tx pgx.Tx) error {
		if err := m.put(ctx, tx, t, piece); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO "+moveTable+" (name, rows, note) VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE SET rows = excluded.rows, note = excluded.note",
			t.Name, have, note)
		return err
	})
	if err != nil {
		return err
	}
	failpoint.Hit("move.copied")
	m.report(t.Name, have)
	return nil
}

// inTx is a transaction with the proof that the seat is still ours, as every batch of
// a daemon is.
func (m *mover) inTx(ctx context.Context, fn func(pgx.Tx) error) error {
	failpoint.Hit("move.commit.before")
	return pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT name FROM heads WHERE name = 'log' FOR UPDATE"); err != nil {
			return err
		}
		var fence int64
		err := tx.QueryRow(ctx, "SELECT fence FROM leases WHERE name = $1", seatName).Scan(&fence)
		if errors.Is(err, sql.ErrNoRows) || err == nil && fence != m.seat.fence {
			return ErrReplaced
		}
		if err != nil {
			return err
		}
		return fn(tx)
	})
}

// put adds rows. Those tables of which the target has rows of its own take them over
// what is there.
func (m *mover) put(ctx context.Context, tx pgx.Tx, t Table, piece [][]any) error {
	if ownRows(t.Name) == ownRows("") {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{t.Name}, t.Columns, pgx.CopyFromRows(piece))
		return err
	}
	key, err := m.key(ctx, t.Name)
	if err != nil {
		return err
	}
	var marks, sets []string
	for i, c := range t.Columns {
		marks = append(marks, "$"+strconv.Itoa(i+1))
		if !slices.Contains(key, c) {
			sets = append(sets, quoted([]string{c})+" = excluded."+quoted([]string{c}))
		}
	}
	for _, row := range piece {
		if _, err := tx.Exec(ctx, "INSERT INTO "+quoted([]string{t.Name})+" ("+quoted(t.Columns)+") VALUES ("+strings.Join(marks, ", ")+
			") ON CONFLICT ("+quoted(key)+") DO UPDATE SET "+strings.Join(sets, ", "), row...); err != nil {
			return err
		}
	}
	return nil
}

// clear takes back what was copied of a table.
func (m *mover) clear(ctx context.Context, table string) error {
	return m.inTx(ctx, func(tx pgx.Tx) error {
		where := ownRows(table)
		if table == "heads" { // the row that every batch holds stays
			where += " AND name <> 'log'"
		}
		if _, err := tx.Exec(ctx, "DELETE FROM "+quoted([]string{table})+" WHERE "+where); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DELETE FROM "+moveTable+" WHERE name = $1", table)
		return err
	})
}

// compare reads every table on both sides and names those that differ.
func (m *mover) compare(ctx context.Context, tables []Table) (out []MovedTable, differ []string, err error) {
	for _, t := range tables {
		query, err := m.selectAll(ctx, t)
		if err != nil {
			return nil, nil, err
		}
		here, there := newDigest(), newDigest()
		if err := m.eachOfSource(ctx, query, len(t.Columns), here.add); err != nil {
			return nil, nil, err
		}
		rows, err := m.conn.Query(ctx, query)
		if err != nil {
			return nil, nil, err
		}
		for rows.Next() {
			row, err := rows.Values()
			if err == nil {
				err = there.add(row)
			}
			if err != nil {
				rows.Close()
				return nil, nil, err
			}
		}
		if err := rows.Err(); err != nil {
			return nil, nil, err
		}
		moved := MovedTable{Name: t.Name, Rows: here.rows, SHA256: here.sum.Sum(nil)}
		if here.rows != there.rows || !bytes.Equal(moved.SHA256, there.sum.Sum(nil)) {
			differ = append(differ, t.Name)
		}
		out = append(out, moved)
	}
	return out, differ, nil
}

// digest is the hash of rows, of whatever store they are.
type digest struct {
	sum  hash.Hash
	rows int64
	buf  []byte
}

func newDigest() *digest { return &digest{sum: sha256.New()} }

func (d *digest) add(row []any) error {
	b := append(d.buf[:0], 'r')
	for _, v := range row {
		switch v := v.(type) {
		case nil:
			b = append(b, 'n')
		case int64:
			b = strconv.AppendInt(append(b, 'i'), v, 10)
		case string:
			b = append(strconv.AppendInt(append(b, 's'), int64(len(v)), 10), ':')
			b = append(b, v...)
		case []byte:
			b = append(strconv.AppendInt(append(b, 'b'), int64(len(v)), 10), ':')
			b = append(b, v...)
		default:
			return fault.New(fault.Internal, "the store holds a %T", v)
		}
	}
	d.buf = b
	d.rows++
	_, err := d.sum.Write(b)
	return err
}
