package confine

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The daemon and a launcher talk over one socket pair: a plan and the program's
// descriptors go in, then orders; reports come back. The end of the stream is the
// lifeline: a launcher that reads it ends its job.

// maxFrame bounds one message. The kernel takes at most a few MiB of arguments.
const maxFrame = 16 << 20

// plan is what the launcher is to do. Names of files, arguments and the
// environment are bytes: they need not be text.
type plan struct {
	Probe bool // build the walls, start nothing

	Path []byte
	Args [][]byte
	Env  [][]byte
	Dir  []byte

	Settings []string // what of /etc may be read
	Read     []string
	Write    []string
	Hide     []string
	Sockets  []string
	Temp     string // temporary directory of a job without a mount namespace
	Network  Network
	Limits   Limits
	Grace    time.Duration

	Landlock   int  // ABI to build for, 0: no Landlock
	Seccomp    bool // deny system calls, and say which
	Unwatched  bool // but not which files
	Namespaces bool // the launcher was started in namespaces of its own
	CountPIDs  bool // bound the processes by their numbers: the user is not held by a limit
}

// order is what the daemon says after the plan.
type order struct {
	Stop bool `json:",omitempty"` // SIGTERM, grace, SIGKILL
	Kill bool `json:",omitempty"`
}

// report is what the launcher says. One field is set.
type report struct {
	Started *started `json:",omitempty"`
	Failed  *failed  `json:",omitempty"`
	Denied  *denied  `json:",omitempty"`
	Ended   *ended   `json:",omitempty"`
}

// started has a pidfd of the program with it and, for NetProxy, the listener.
type started struct {
	Unseen string `json:",omitempty"` // why refusals are not seen
}

// failed says that nothing ran.
type failed struct {
	Stage string // "exec" is the program's own fault
	Errno int
	Text  string
}

type denied struct {
	What, Target string
	Count        int
}

type ended struct {
	Status  uint32
	Denials []denied
}

// channel is one end of the socket pair. Sending is safe for concurrent use,
// receiving has one owner.
type channel struct {
	conn *net.UnixConn
	mu   sync.Mutex
}

func newChannel(f *os.File) (*channel, error) {
	defer f.Close() // FileConn has its own
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("not a unix socket")
	}
	return &channel{conn: conn}, nil
}

func (c *channel) close() error { return c.conn.Close() }

// send sends v, with descriptors beside its first byte.
func (c *channel) send(v any, fds ...int) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxFrame {
		return fmt.Errorf("message of %d bytes: %w", len(body), unix.E2BIG)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	frame = append(frame, body...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(fds) > 0 {
		n, _, err := c.conn.WriteMsgUnix(frame[:1], unix.UnixRights(fds...), nil)
		if err != nil {
			return err
		}
		frame = frame[n:]
	}
	_, err = c.conn.Write(frame)
	return err
}

// receive reads one message into v and returns the descriptors that came with it,
// which are the caller's to close, also when there is an error.
func (c *channel) receive(v any) (fds []*os.File, err error) {
	var head [4]byte
	oob := make([]byte, unix.CmsgSpace(8*4))
	for got := 0; got < len(head); {
		n, oobn, _, _, err := c.conn.ReadMsgUnix(head[got:], oob)
		if err != nil {
			return fds, err
		}
		if n == 0 {
			return fds, io.EOF
		}
		got += n
		more, err := rights(oob[:oobn])
		fds = append(fds, more...)
		if err != nil {
			return fds, err
		}
	}
	size := binary.BigEndian.Uint32(head[:])
	if size > maxFrame {
		return fds, fmt.Errorf("message of %d bytes", size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.conn, body); err != nil {
		return fds, err
	}
	return fds, json.Unmarshal(body, v)
}

func rights(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd) // ReadMsgUnix asks for it; this is for kernels that forget
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // descriptors that are given up
	}
}
