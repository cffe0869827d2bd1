package daemon

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/wire"
)

func TestASocketThatIsRemovedIsMadeAnew(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	client, _ := up(t, o)
	if err := os.Remove(o.Instance.Socket()); err != nil {
		t.Fatal(err)
	}
	for end := time.After(patience); ; {
		_, err := client.SystemPing(t.Context())
		if err == nil {
			return
		}
		if !errors.Is(err, wire.ErrNoDaemon) && !fault.Is(err, fault.Unavailable) {
			t.Fatal(err)
		}
		select {
		case <-end:
			t.Fatalf("the daemon cannot be reached again: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestADaemonEndsWhenItsStoreIsTakenAway(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(path string) error{
		"removed": os.Remove,
		"replaced": func(path string) error {
			if err := os.Rename(path, path+".old"); err != nil {
				return err
			}
			return os.WriteFile(path, nil, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t, "")
			ready, ended := make(chan struct{}), make(chan error, 1)
			o.Ready = func() { close(ready) }
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() { ended <- Run(ctx, o) }()
			<-ready
			client := wire.NewClient(o.Instance.Socket())
			ask(t, client, "remember that x is y")
			if err := harm(o.Instance.StateDB()); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				if !fault.Is(err, fault.Verification) {
					t.Errorf("it ended with %v", err)
				}
			case <-time.After(patience):
				t.Error("it goes on without its store")
			}
		})
	}
}

func TestNothingIsTakenIntoACondemnedStore(t *testing.T) {
	t.Parallel()
	d, err := open(t.Context(), options(t, ""), turn{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = d.close() }() // it cannot write its last words
	d.db.Condemn(fault.New(fault.Verification, "gone"))
	_, err = d.messageSend(t.Context(), wire.MessageSendRequest{Text: "hello"})
	if !fault.Is(err, fault.Verification) {
		t.Errorf("a message was answered %v", err)
	}
}
