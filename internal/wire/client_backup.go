package wire

import "context"

// BackupCreate calls backup.create: writes a backup of the whole instance, flushed and read back.
func (c *Client) BackupCreate(ctx context.Context, req BackupCreateRequest, on func(BackupProgress) error) (BackupResult, error) {
	return watch(ctx, c, BackupCreate, req, on)
}

// RestorePending calls restore.pending: what would happen if a restored instance were let go.
func (c *Client) RestorePending(ctx context.Context) (PendingWork, error) {
	return call(ctx, c, RestorePending, Empty{})
}

// RestoreRelease calls restore.release: lets a restored instance go.
func (c *Client) RestoreRelease(ctx context.Context, req RestoreReleaseRequest) (RestoreReleaseResult, error) {
	return call(ctx, c, RestoreRelease, req)
}
