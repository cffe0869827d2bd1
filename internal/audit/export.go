package audit

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/ombud-run/ombud/internal/fault"
	"github.com/ombud-run/ombud/internal/vault"
)

// exportFormat is the first line's word for what the file is.
const exportFormat = "ombud.audit.v1"

// maxLine bounds a line of an export; an entry's fields are all short.
const maxLine = 1 << 20

// line is one line of an export. Exactly one of the pointers is set.
type line struct {
	Header     *headerLine     `json:"header,omitempty"`
	Chain      *chainLine      `json:"chain,omitempty"`
	Entry      *entryLine      `json:"entry,omitempty"`
	Checkpoint *checkpointLine `json:"checkpoint,omitempty"`
	End        *endLine        `json:"end,omitempty"`
}

type headerLine struct {
	Format string `json:"format"`
	Key    string `json:"key"` // the public key, to be compared with one from elsewhere
}

type chainLine struct {
	Opening   json.RawMessage `json:"opening"`
	Hash      string          `json:"hash"`
	MAC       string          `json:"mac"`
	Signature string          `json:"signature"`
}

type entryLine struct {
	Record json.RawMessage `json:"record"`
	Hash   string          `json:"hash"`
	MAC    string          `json:"mac"`
}

type checkpointLine struct {
	Seq       int64  `json:"seq"`
	At        int64  `json:"at"`
	Hash      string `json:"hash"`
	Signature string `json:"signature"`
}

// endLine closes the file: it signs the SHA-256 of all lines before it, so that a
// file cut at a border between lines does not pass for a whole one.
type endLine struct {
	Chains    int64  `json:"chains"`
	Entries   int64  `json:"entries"`
	SHA256    string `json:"sha256"`
	Signature string `json:"signature"`
}

func (e endLine) message() []byte {
	e.Signature = ""
	return signedMessage("export", e)
}

// exporter writes what it visits as JSON lines.
type exporter struct {
	w      *bufio.Writer
	sum    hash.Hash
	report Report
}

func (x *exporter) write(l line) error {
	text, err := canonical(l)
	if err != nil {
		return err
	}
	x.sum.Write([]byte(text + "\n"))
	_, err = x.w.WriteString(text + "\n")
	return err
}

func (x *exporter) open(r chainRow) error {
	x.report.Chains++
	return x.write(line{Chain: &chainLine{json.RawMessage(r.text), hex.EncodeToString(r.hash), hex.EncodeToString(r.mac), hex.EncodeToString(r.sig)}})
}

func (x *exporter) entry(r entryRow) error {
	x.report.Entries++
	return x.write(line{Entry: &entryLine{json.RawMessage(r.text), hex.EncodeToString(r.hash), hex.EncodeToString(r.mac)}})
}

func (x *exporter) checkpoint(r checkpointRow) error {
	return x.write(line{Checkpoint: &checkpointLine{r.seq, r.at, hex.EncodeToString(r.hash), hex.EncodeToString(r.sig)}})
}

func (x *exporter) close() error { return nil }

// Export writes the whole record as JSON lines that VerifyFile checks without any
// secret. What is written to the store meanwhile may be in it or not. It does not
// verify; a damaged record is exported as it is.
func (a *Audit) Export(ctx context.Context, w io.Writer) error {
	x := &exporter{w: bufio.NewWriter(w), sum: sha256.New()}
	err := x.write(line{Header: &headerLine{Format: exportFormat, Key: a.vault.Keys().PublicString()}})
	if err == nil {
		err = walk(ctx, a.db, x)
	}
	if err != nil {
		return fmt.Errorf("export the audit: %w", err)
	}
	end := endLine{Chains: x.report.Chains, Entries: x.report.Entries, SHA256: hex.EncodeToString(x.sum.Sum(nil))}
	end.Signature = hex.EncodeToString(ed25519.Sign(a.sign, end.message()))
	if err := x.write(line{End: &end}); err != nil {
		return fmt.Errorf("export the audit: %w", err)
	}
	return x.w.Flush()
}

// VerifyFile checks an export with the public key of the instance, which must come
// from elsewhere than the file. With keys.Audit set it checks the MACs too. The
// file is read once, line by line; errors are as those of Verify.
func VerifyFile(r io.Reader, keys vault.Keys) (Report, error) {
	return VerifyFileWith(r, keys, &Anchors{})
}

// VerifyFileWith is VerifyFile that holds the export against anchors too: an export
// of a store put back to an older state is whole in itself, but lacks what they name.
func VerifyFileWith(r io.Reader, keys vault.Keys, anchors *Anchors) (Report, error) {
	f := &fileCheck{keys: keys, sum: sha256.New(), known: anchors, anchors: anchors.byPlace(), chains: map[string]bool{}}
	scan := bufio.NewScanner(r)
	scan.Buffer(make([]byte, 0, 64<<10), maxLine)
	for scan.Scan() {
		f.number++
		if err := f.line(scan.Bytes()); err != nil {
			if _, ok := errors.AsType[*Bad](err); ok {
				return f.report(), err
			}
			return f.report(), fault.New(fault.Verification, "line %d: %w", f.number, err)
		}
	}
	if err := scan.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			return f.report(), fault.New(fault.Verification, "line %d is too long", f.number+1)
		}
		return f.report(), err
	}
	if !f.ended {
		return f.report(), fault.New(fault.Verification, "the file ends after line %d without its closing line: it was cut", f.number)
	}
	return f.report(), nil
}

type fileCheck struct {
	keys   vault.Keys
	check  *checker
	sum    hash.Hash
	number int
	ended  bool

	known   *Anchors
	anchors map[chainSeq]int // those not met yet, as lines of known
	chains  map[string]bool
	points  []restorePoint
	givenUp int64
}

// meet holds a row that was checked against its anchor, if it has one.
func (f *fileCheck) meet(chain string, seq int64, hash []byte) error {
	at := chainSeq{chain, seq}
	i, anchored := f.anchors[at]
	if !anchored {
		return nil
	}
	delete(f.anchors, at)
	return f.known.lines[i].compare(hash)
}

// missed reports an anchor of which the whole file had nothing, the first one.
func (f *fileCheck) missed() error {
	var first *anchorLine
	for _, i := range f.anchors {
		l := f.known.lines[i]
		if f.known.leftBehind(i, f.chains[l.Chain], f.points) {
			f.givenUp++
			continue
		}
		if first == nil || l.Epoch < first.Epoch || l.Epoch == first.Epoch && l.Seq < first.Seq {
			first = &l
		}
	}
	if first == nil {
		return nil
	}
	return first.compare(nil)
}

// opened notes a chain that was checked.
func (f *fileCheck) opened(hash []byte) {
	o := f.check.now
	f.chains[o.Chain] = true
	if o.Restored != nil {
		f.points = append(f.points, restorePoint{opening: *o, hash: hash})
	}
}

func (f *fileCheck) report() Report {
	if f.check == nil {
		return Report{}
	}
	return f.check.report
}

func (f *fileCheck) line(text []byte) error {
	var l line
	if err := strict(string(text), &l); err != nil {
		return err
	}
	if err := f.dispatch(l); err != nil {
		return err
	}
	f.sum.Write(text)
	f.sum.Write([]byte("\n"))
	return nil
}

func (f *fileCheck) dispatch(l line) error {
	set := 0
	for _, is := range []bool{l.Header != nil, l.Chain != nil, l.Entry != nil, l.Checkpoint != nil, l.End != nil} {
		if is {
			set++
		}
	}
	switch {
	case set != 1 || f.ended || (l.Header != nil) != (f.check == nil):
		return errors.New("it does not belong here")
	case l.Header != nil:
		return f.header(*l.Header)
	case l.Chain != nil:
		var d decoder
		r := chainRow{text: string(l.Chain.Opening), hash: d.hex(l.Chain.Hash), mac: d.hex(l.Chain.MAC), sig: d.hex(l.Chain.Signature)}
		err := orElse(d.err, func() error { return f.check.open(r) })
		return orElse(err, func() error { f.opened(r.hash); return f.meet(f.check.now.Chain, 0, r.hash) })
	case l.End != nil:
		return f.end(*l.End)
	case f.check.now == nil:
		return errors.New("it stands before any chain")
	case l.Entry != nil:
		return f.entry(*l.Entry)
	default:
		var d decoder
		c := l.Checkpoint
		r := checkpointRow{seq: c.Seq, at: c.At, hash: d.hex(c.Hash), sig: d.hex(c.Signature)}
		return orElse(d.err, func() error { return f.check.checkpoint(r) })
	}
}

func (f *fileCheck) header(h headerLine) error {
	if h.Format != exportFormat {
		return fmt.Errorf("it is %q, not %q", h.Format, exportFormat)
	}
	if h.Key != f.keys.PublicString() {
		return fmt.Errorf("the file was signed by %s, not by %s", h.Key, f.keys.PublicString())
	}
	f.check = newChecker(f.keys)
	return nil
}

func (f *fileCheck) entry(e entryLine) error {
	var d decoder
	var rec record
	r := entryRow{text: string(e.Record), hash: d.hex(e.Hash), mac: d.hex(e.MAC)}
	if err := json.Unmarshal(e.Record, &rec); err != nil {
		return err
	}
	r.seq, r.at = rec.Seq, rec.At
	err := orElse(d.err, func() error { return f.check.entry(r) })
	return orElse(err, func() error { return f.meet(rec.Chain, rec.Seq, r.hash) })
}

func (f *fileCheck) end(e endLine) error {
	if err := f.check.close(); err != nil {
		return err
	}
	var d decoder
	sum, sig := d.hex(e.SHA256), d.hex(e.Signature)
	switch {
	case d.err != nil:
		return d.err
	case e.Chains != f.check.report.Chains || e.Entries != f.check.report.Entries:
		return fmt.Errorf("it counts %d chains and %d entries", e.Chains, e.Entries)
	case !bytes.Equal(sum, f.sum.Sum(nil)):
		return errors.New("the file was changed: its checksum is another")
	}
	f.ended = true
	return orElse(f.keys.Verify(e.message(), sig), f.missed)
}

// decoder keeps the first error of several.
type decoder struct{ err error }

func (d *decoder) hex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil && d.err == nil {
		d.err = err
	}
	return b
}

func orElse(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}
