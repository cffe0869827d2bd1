package confine

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func channels(t testing.TB) (*channel, *channel) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := newChannel(os.NewFile(uintptr(pair[0]), "a"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := newChannel(os.NewFile(uintptr(pair[1]), "b"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.close(); b.close() })
	return a, b
}

func TestAPlanComesThroughByteByByte(t *testing.T) {
	t.Parallel()
	a, b := channels(t)
	odd := []byte{0xff, 0xfe, '\n', 0x80}
	sent := plan{Path: odd, Args: [][]byte{odd, nil}, Env: [][]byte{make([]byte, 3<<20)}}
	done := make(chan error, 1)
	go func() { done <- a.send(sent, 0, 1, 2) }()
	var got plan
	files, err := b.receive(&got)
	if err != nil || len(files) != 3 || string(got.Path) != string(odd) || string(got.Args[0]) != string(odd) || len(got.Env[0]) != 3<<20 {
		t.Errorf("%d files, %v, %q", len(files), err, got.Path)
	}
	closeAll(files)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// FuzzReceive: whatever comes, receiving ends with a message or an error and keeps
// no descriptor.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Add([]byte("\x00\x00\x00\x05{\"Ki"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, b := channels(t)
		if len(data) > 64<<10 {
			return
		}
		if len(data) > 0 {
			if _, _, err := a.conn.WriteMsgUnix(data, unix.UnixRights(0), nil); err != nil {
				t.Fatal(err)
			}
		}
		a.close()
		for {
			var o order
			files, err := b.receive(&o)
			closeAll(files)
			if err != nil {
				return
			}
		}
	})
}
