// Package local is the channel of the person at this machine: the terminal and
// whatever else talks to the operator socket. Its messages are rows, so delivering
// one is part of the transaction that says it, and a front end that was away reads
// it later.
package local

import (
	"context"

	"github.com/ombud-run/ombud/internal/db"
	"github.com/ombud-run/ombud/internal/outbox"
)

// Name is the channel's name in addresses.
const Name = "local"

// Channel delivers to the store itself.
type Channel struct{}

var _ outbox.TxSender = Channel{}

// SendTx has nothing to do: the item's own row is what the person reads.
func (Channel) SendTx(context.Context, *db.Tx, outbox.Item) (outbox.Receipt, error) {
	return outbox.Receipt{}, nil
}
