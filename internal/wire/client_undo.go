package wire

import "context"

// UndoList calls undo.list: what can be undone, newest first.
func (c *Client) UndoList(ctx context.Context, req UndoListRequest) (UndoListResult, error) {
	return call(ctx, c, UndoList, req)
}

// UndoShow calls undo.show: what an undo would do.
func (c *Client) UndoShow(ctx context.Context, req UndoShowRequest) (UndoShowResult, error) {
	return call(ctx, c, UndoShow, req)
}

// UndoRestore calls undo.restore: takes a call, and those after it, back.
func (c *Client) UndoRestore(ctx context.Context, req UndoRestoreRequest) (UndoRestoreResult, error) {
	return call(ctx, c, UndoRestore, req)
}
