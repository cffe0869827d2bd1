package wire

import "context"

// VaultStatus calls vault.status: what opens the vault, and what that does not protect.
func (c *Client) VaultStatus(ctx context.Context) (VaultStatus, error) {
	return call(ctx, c, VaultState, Empty{})
}

// VaultPassphrase calls vault.passphrase: sets or changes the passphrase.
func (c *Client) VaultPassphrase(ctx context.Context, req VaultPassphraseRequest) (VaultStatus, error) {
	return call(ctx, c, VaultPassphrase, req)
}

// VaultRotate calls vault.rotate: makes new keys for what opens the vault.
func (c *Client) VaultRotate(ctx context.Context, req VaultRotateRequest) (VaultStatus, error) {
	return call(ctx, c, VaultRotate, req)
}

// VaultRecover calls vault.recover: sets anew what opens the vault, by the recovery key.
func (c *Client) VaultRecover(ctx context.Context, req VaultRecoverRequest) (VaultStatus, error) {
	return call(ctx, c, VaultRecover, req)
}

// VaultRecoveryKey calls vault.recoverykey: makes a recovery key in the place of the one before.
func (c *Client) VaultRecoveryKey(ctx context.Context) (VaultRecoveryKeyResult, error) {
	return call(ctx, c, VaultRecoveryKey, Empty{})
}
