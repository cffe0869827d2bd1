package wire

import (
	"strings"
	"testing"
)

func BenchmarkParseRequest(b *testing.B) {
	for name, text := range map[string]string{"short": "hello", "1MiB": strings.Repeat("hello wörld\n", 1<<20/13)} {
		frame, err := EncodeFrame(struct {
			JSONRPC string             `json:"jsonrpc"`
			ID      int                `json:"id"`
			Method  string             `json:"method"`
			Params  MessageSendRequest `json:"params"`
		}{Version, 1, "message.send", MessageSendRequest{Text: text}})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				req, perr := ParseRequest(frame[headerLen:])
				if perr != nil {
					b.Fatal(perr)
				}
				var params MessageSendRequest
				if err := DecodeStrict(req.Params, &params); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
