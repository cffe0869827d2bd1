package audit

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// Entry is one act to be recorded. Text fields are for people and auditors and
// are stored readable: put no content, secret or recipient into them.
type Entry struct {
	Kind         string   // what sort of act, as "call", "refusal", "grant"
	Actor        string   // who did it
	Subject      string   // by whose authority
	Tool         string   // canonical name, if a tool was used
	Scopes       []string // what it needed, in full; stored redacted and as keyed hash
	Outcome      string   // "ok", "denied", an error class
	Reason       string   // short code of why, if it needs one
	Run          string
	Step         string
	InputMAC     []byte // keyed hash of the input
	DurationUS   int64
	CostMicroUSD int64
	Count        int64 // how many equal acts this entry stands for, if more than one
}

// Ref names an entry. A step keeps the Ref of its outcome, so that a chain whose
// end was cut off does not go unnoticed.
type Ref struct {
	Chain string
	Seq   int64
	Hash  []byte
}

// record is the canonical JSON of an entry: these keys, in this order.
type record struct {
	Chain        string   `json:"chain"`
	Seq          int64    `json:"seq"`
	At           int64    `json:"at"`
	Kind         string   `json:"kind"`
	Actor        string   `json:"actor"`
	Subject      string   `json:"subject"`
	Tool         string   `json:"tool,omitempty"`
	Scopes       []string `json:"scopes,omitempty"`
	ScopeMAC     string   `json:"scope_mac,omitempty"`
	InputMAC     string   `json:"input_mac,omitempty"`
	Outcome      string   `json:"outcome"`
	Reason       string   `json:"reason,omitempty"`
	DurationUS   int64    `json:"duration_us"`
	CostMicroUSD int64    `json:"cost_micro_usd"`
	Count        int64    `json:"count,omitempty"`
	Run          string   `json:"run,omitempty"`
	Step         string   `json:"step,omitempty"`
}

// opening is the canonical JSON by which a chain begins.
type opening struct {
	Number   int64  `json:"number"`
	Chain    string `json:"chain"`
	Node     string `json:"node"`
	Epoch    int64  `json:"epoch"`
	At       int64  `json:"at"`
	Every    int64  `json:"checkpoint_every"`
	PrevName string `json:"prev_chain"` // the node's chain before, "" for its first
	PrevSeq  int64  `json:"prev_seq"`   // how many entries that one has
	PrevHash string `json:"prev_hash"`  // and the hash of its last

	Restored *Restored `json:"restored,omitempty"` // the store before it came out of a backup
}

// link is one place in a chain: what the next one builds on.
type link struct {
	seq  int64
	hash []byte
	mac  []byte
}

// next is the place after l that holds text. key is nil where there is no secret;
// then there is no mac.
func (l link) next(text string, key []byte) link {
	h := sha256.New()
	h.Write(l.hash)
	h.Write([]byte(text))
	out := link{seq: l.seq + 1, hash: h.Sum(nil)}
	if key != nil {
		m := hmac.New(sha256.New, key)
		m.Write(l.mac)
		m.Write(out.hash)
		out.mac = m.Sum(nil)
	}
	return out
}

// genesis is what the first chain opening builds on. It is a constant, so that a
// store whose first chains are gone cannot pass for a young one.
func genesis() link {
	zero := make([]byte, sha256.Size)
	return link{hash: zero, mac: zero}
}

// text is a field as it is stored. JSON would replace what is not UTF-8 in a way
// that does not come back the same.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// redact keeps the base of a scope and hides what it is about.
func redact(scope string) string {
	base, _, qualified := strings.Cut(text(scope), ":")
	if qualified {
		return base + ":" + hidden
	}
	return base
}

func canonical(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

func checkpointMessage(chain string, seq int64, hash []byte) []byte {
	return signedMessage("checkpoint", struct {
		Chain string `json:"chain"`
		Seq   int64  `json:"seq"`
		Hash  string `json:"hash"`
	}{chain, seq, hex.EncodeToString(hash)})
}

func openingMessage(hash []byte) []byte {
	return signedMessage("chain", struct {
		Hash string `json:"hash"`
	}{hex.EncodeToString(hash)})
}

// signedMessage keeps a signature made for one purpose from serving another.
func signedMessage(purpose string, v any) []byte {
	text, err := canonical(v)
	if err != nil {
		panic("audit: strings and numbers do not marshal: " + err.Error())
	}
	return []byte("ombud.audit." + purpose + ".v1\n" + text)
}
