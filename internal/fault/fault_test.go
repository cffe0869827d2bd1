package fault

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestEveryClassHasOneRowAndItsOwnIPCCode(t *testing.T) {
	t.Parallel()
	classes, codes := map[Class]bool{}, map[int]bool{}
	for _, row := range Codes() {
		if classes[row.Class] || codes[row.IPC] {
			t.Errorf("%s: class or IPC code %d is listed twice", row.Class, row.IPC)
		}
		classes[row.Class], codes[row.IPC] = true, true
		if got := ByIPC(row.IPC); got != row.Class {
			t.Errorf("ByIPC(%d) = %s, want %s", row.IPC, got, row.Class)
		}
		if row.Exit < 1 || row.Exit > 125 || row.HTTP < 200 || row.HTTP > 599 {
			t.Errorf("%s: codes out of range: %+v", row.Class, row)
		}
	}
}

func TestClassSurvivesWrapping(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk gone")
	base := New(Unavailable, "write event: %w", cause).WithHint("free some space")
	err := fmt.Errorf("take message: %w", base)
	if ClassOf(err) != Unavailable || HintOf(err) != "free some space" || !errors.Is(err, cause) {
		t.Errorf("class %q, hint %q, is cause %v", ClassOf(err), HintOf(err), errors.Is(err, cause))
	}
	if Exit(err) != 75 || Exit(nil) != 0 || ClassOf(nil) != "" {
		t.Errorf("exit %d, exit of nil %d, class of nil %q", Exit(err), Exit(nil), ClassOf(nil))
	}
	outer := New(Denied, "send: %w", err)
	if ClassOf(outer) != Denied || HintOf(outer) != "free some space" {
		t.Errorf("outer class %q hint %q", ClassOf(outer), HintOf(outer))
	}
}

func TestContextErrorsHaveTheirClass(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]Class{
		context.DeadlineExceeded: Timeout,
		context.Canceled:         Cancelled,
		errors.New("x"):          Internal,
	} {
		if got := ClassOf(fmt.Errorf("wait: %w", err)); got != want {
			t.Errorf("ClassOf(%v) = %s, want %s", err, got, want)
		}
	}
}
