package wire

import "context"

// SecretSet calls secret.set: sets a secret; no method gives it back.
func (c *Client) SecretSet(ctx context.Context, req SecretSetRequest) (SecretSetResult, error) {
	return call(ctx, c, SecretSet, req)
}

// SecretList calls secret.list: the secrets there are, without their values.
func (c *Client) SecretList(ctx context.Context) (SecretListResult, error) {
	return call(ctx, c, SecretList, Empty{})
}

// SecretRemove calls secret.remove: removes a secret.
func (c *Client) SecretRemove(ctx context.Context, req SecretRemoveRequest) (SecretRemoveResult, error) {
	return call(ctx, c, SecretRemove, req)
}
