package backup

import (
	"encoding/binary"
	"errors"

	"github.com/ombud-run/ombud/internal/fault"
)

// Kinds of values.
const (
	valueNone byte = iota
	valueInt
	valueText
	valueBytes
)

// appendRow adds a row in the form of the package comment.
func appendRow(b []byte, row []any) ([]byte, error) {
	for _, v := range row {
		switch v := v.(type) {
		case nil:
			b = append(b, valueNone)
		case int64:
			b = binary.AppendVarint(append(b, valueInt), v)
		case string:
			b = binary.AppendUvarint(append(b, valueText), uint64(len(v)))
			b = append(b, v...)
		case []byte:
			b = binary.AppendUvarint(append(b, valueBytes), uint64(len(v)))
			b = append(b, v...)
		default:
			return b, fault.New(fault.Internal, "the store holds a %T", v)
		}
	}
	return b, nil
}

var errRow = errors.New("a row cannot be read")

// parseRows reads whole rows of so many columns.
func parseRows(b []byte, columns int) (rows [][]any, err error) {
	if columns <= 0 {
		return nil, errRow
	}
	for len(b) > 0 {
		row := make([]any, columns)
		for i := range row {
			if row[i], b, err = parseValue(b); err != nil {
				return nil, err
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func parseValue(b []byte) (v any, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, errRow
	}
	kind, b := b[0], b[1:]
	switch kind {
	case valueNone:
		return nil, b, nil
	case valueInt:
		n, size := binary.Varint(b)
		if size <= 0 {
			return nil, nil, errRow
		}
		return n, b[size:], nil
	case valueText, valueBytes:
		n, size := binary.Uvarint(b)
		if size <= 0 || n > uint64(len(b)-size) {
			return nil, nil, errRow
		}
		content := b[size : size+int(n)]
		if kind == valueText {
			return string(content), b[size+int(n):], nil
		}
		return append([]byte{}, content...), b[size+int(n):], nil
	}
	return nil, nil, errRow
}
