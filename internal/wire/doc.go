// Package wire is the language between ombud's daemon and its front ends: the
// frame, the JSON-RPC 2.0 messages, every method with its typed parameters,
// notes and result, and the one client.
//
// A frame is a 4-byte big-endian length and that many bytes of UTF-8 JSON, at
// most MaxFrame. A frame holds one request, response or notification; batches
// are refused. What a receiver may rely on:
//
//   - Each request gets exactly one response, whatever happens, unless the
//     connection ends first.
//   - A method that streams sends its notes as notifications whose params are
//     {"request": <id of the request>, "note": {…}}; they come in order and all
//     of them before the response.
//   - request.cancel {id} ends one request early; it is then answered as
//     cancelled.
//   - A note of an unknown name and an unknown field of a result are to be
//     ignored (a newer daemon), an unknown field of a parameter is refused.
//
// Times are int64 Unix microseconds and end in _at (or are named at), durations
// end in their unit (_us, _s), money is int64 millionths of a US dollar and ends
// in _microusd. A field of a parameter without "omitempty" is required.
//
// docs/ipc-schema.json is written from this package by
// go test ./internal/wire -run TestSchema -update.
package wire
