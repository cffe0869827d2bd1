// Package redact takes known values out of what is about to be shown: logs, errors,
// prompts, results, answers of the daemon. A [Redactor] is told the values; it finds
// them wherever they stand and puts "[secret:NAME]" in their place.
//
// A value is found as it is; in base64, standard and URL alphabet, padded or not, at
// each of the three places it can have in a longer encoded text, wrapped or not; in
// hex of either case, with spaces or colons between; percent-escaped and backslash-
// escaped (JSON, and \xHH) in any mixture of escaped and plain, also one within the
// other. Of a value with several lines, or one that is JSON, the longer lines and
// strings are found by themselves too. Nothing else is: a value that is reversed,
// compressed, cut into pieces under eight bytes or spelled out is not recognised. At
// the ends of a value within a longer base64 text up to four bits stay.
//
// What has no value in it comes out byte for byte as it was, and how a stream is cut
// into pieces never matters. A value under eight bytes is not looked for: it would be
// part of anything.
//
// Nothing here is durable. The values are in memory only, and after a start they have
// to be told again before anything is shown. A nil Redactor knows no values.
package redact
