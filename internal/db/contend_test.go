package db_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ombud-run/ombud/internal/db"
)

// contend is a child that takes the seat, writes with it, and takes it again when it
// was lost, until it is killed. It tells what it begins and what came of it:
//
//	take TIME TIME FENCE
//	write TIME KEY FENCE     it is about to
//	wrote TIME KEY SEQ       SEQ is its place among all writes; 0: it was refused
func contend(ctx context.Context, dsn, name string) error {
	for round := 0; ; round++ {
		begun := time.Now().UnixNano()
		seat, err := db.TakeSeat(ctx, db.SeatOptions{DSN: dsn, Home: name, Name: name, TTL: 700 * time.Millisecond, Waiting: func(db.Holder) {}})
		if err != nil {
			return err
		}
		fmt.Println("take", begun, time.Now().UnixNano(), seat.Fence())
		d, err := db.Open(ctx, db.Options{DSN: dsn, Seat: seat, Readers: 1})
		if err != nil {
			return err
		}
		for n := 0; ; n++ {
			key := fmt.Sprintf("%s/%d/%d", name, round, n)
			fmt.Println("write", time.Now().UnixNano(), key, seat.Fence())
			var seq int64
			err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) (err error) {
				if seq, err = tx.Next(ctx, "mutex"); err != nil {
					return err
				}
				_, err = tx.Exec(ctx, "INSERT INTO meta (key, value) VALUES ($1, $2)", key, fmt.Sprint(seq))
				return err
			})
			if err != nil {
				seq = 0
			}
			fmt.Println("wrote", time.Now().UnixNano(), key, seq)
			if err != nil {
				break
			}
			if rand.IntN(200) == 0 { // one that lets go by itself
				break
			}
			<-time.After(15 * time.Millisecond) // it is paused mostly between two batches
		}
		if err := d.Close(); err != nil {
			return err
		}
		if err := seat.Release(ctx); err != nil {
			fmt.Println("release", err)
		}
	}
}
