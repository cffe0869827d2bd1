package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ombud-run/ombud/internal/fault"
)

func header(size uint32) []byte { return binary.BigEndian.AppendUint32(nil, size) }

func TestFramesRoundTripByteByByte(t *testing.T) {
	t.Parallel()
	texts := []string{"", "a", "grüße <b>&\u2028", strings.Repeat("x", 1<<20)}
	var stream bytes.Buffer
	for _, s := range texts {
		frame, err := EncodeFrame(MessageSendRequest{Text: s})
		if err != nil {
			t.Fatal(err)
		}
		stream.Write(frame)
	}
	r := iotest.OneByteReader(&stream)
	for _, want := range texts {
		body, err := ReadFrame(r)
		if err != nil {
			t.Fatal(err)
		}
		var got MessageSendRequest
		if err := json.Unmarshal(body, &got); err != nil || got.Text != want {
			t.Fatalf("%d bytes came back as %d, %v", len(want), len(got.Text), err)
		}
	}
	if _, err := ReadFrame(r); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v, want EOF", err)
	}
}

func TestReadFrameTellsACutFrame(t *testing.T) {
	t.Parallel()
	whole := append(header(4), "true"...)
	for n := 1; n < len(whole); n++ {
		if _, err := ReadFrame(bytes.NewReader(whole[:n])); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
}

// The next test is not parallel: it measures memory of the whole process.
func TestReadFrameAllocatesWhatArrivedNotWhatWasClaimed(t *testing.T) {
	for _, size := range []uint32{MaxFrame, MaxFrame + 1, 1<<32 - 1} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ReadFrame(io.MultiReader(bytes.NewReader(header(size)), strings.NewReader("only this")))
		runtime.ReadMemStats(&after)
		if long, ok := errors.AsType[*TooLong](err); size > MaxFrame && (!ok || long.Size != int64(size)) || err == nil {
			t.Fatalf("%d: %v", size, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 64<<10 {
			t.Errorf("%d bytes allocated for a claim of %d", got, size)
		}
	}
}

func TestSkipFindsTheNextFrame(t *testing.T) {
	t.Parallel()
	r := bytes.NewReader(append(append(header(MaxFrame+3), make([]byte, MaxFrame+3)...), append(header(2), "{}"...)...))
	_, err := ReadFrame(r)
	long, ok := errors.AsType[*TooLong](err)
	if !ok || !long.Skippable() {
		t.Fatal(err)
	}
	if err := long.Skip(r); err != nil {
		t.Fatal(err)
	}
	if body, err := ReadFrame(r); err != nil || string(body) != "{}" {
		t.Errorf("%q, %v", body, err)
	}
	if (&TooLong{Size: 0x47455420}).Skippable() {
		t.Error("an HTTP request is taken for a frame")
	}
}

func TestEncodeFrameRefusesWhatNobodyWouldRead(t *testing.T) {
	t.Parallel()
	if _, err := EncodeFrame(strings.Repeat("x", MaxFrame-2)); err != nil {
		t.Errorf("exactly the limit: %v", err)
	}
	if _, err := EncodeFrame(strings.Repeat("x", MaxFrame-1)); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
		t.Errorf("one over the limit: %v", err)
	}
	if _, err := EncodeFrame(json.RawMessage("{")); !fault.Is(err, fault.Internal) {
		t.Errorf("broken JSON: %v", err)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{})
	f.Add(header(0))
	f.Add(append(header(2), "{}{}"...))
	f.Add(header(MaxFrame + 1))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		for {
			before := r.Len()
			body, err := ReadFrame(r)
			if err != nil {
				return
			}
			start := in[len(in)-before:]
			if !bytes.Equal(start[:4], header(uint32(len(body)))) || !bytes.Equal(start[4:4+len(body)], body) || r.Len() != before-4-len(body) {
				t.Fatalf("frame of %d bytes is not what stood there", len(body))
			}
		}
	})
}
