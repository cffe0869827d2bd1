package telegram

import (
	"context"
	"testing"

	"github.com/ombud-run/ombud/internal/channel"
	"github.com/ombud-run/ombud/internal/channel/channeltest"
)

func TestARefusalThatIsCutIsOne(t *testing.T) {
	t.Parallel()
	channeltest.Cut(t, func(url string) (channel.Adapter, func(), error) {
		a, err := newAdapter(channel.Setup{
			Values: map[string]string{"api_url": url}, Secret: func(context.Context, string) (string, error) { return "1:a", nil },
		}, tuning{})
		if err != nil {
			return nil, nil, err
		}
		return a, a.calls.CloseIdleConnections, nil
	})
}
