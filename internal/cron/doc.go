// Package cron reads schedules and says when they fire. It decides from its
// input alone: no clock, no goroutine, and no I/O but the zone rules that package
// time loads. Nothing of it survives a crash; the caller keeps the text, the
// zone, the anchor and the last instant fired, and everything else follows.
//
// # Text
//
//	[CRON_TZ=Europe/Berlin] [second] minute hour day month weekday
//
// Five fields have second 0. A field is a list of *, N, N-M, */S, N-M/S and N/S
// (from N to the end); ? is *; months and weekdays have names; weekday 7 is
// Sunday. @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually
// are what they always were. "@every 90m" counts real time from an anchor,
// "@at 2026-05-01T09:00:00+02:00" fires once.
//
// Where neither day nor weekday is *, either is enough, as in Vixie cron. A day
// field of the form */2 counts as given there, as it does in the library that
// most Go programs use; [Schedule.Notes] says so. L, W and # are refused.
//
// # When the clock is changed
//
// Three kinds of schedule, told apart by what may vary within a day. A field
// varies if it takes every value or is made by a step; a step that leaves one
// value does not vary.
//
// Fixed: second, minute and hour are numbers, lists or plain ranges. Each time
// named fires exactly once on each of its dates that exists: what the clock jumps
// over fires at the first instant after the jump, what it shows twice fires the
// first time. It follows, in one sentence, the highest the local clock has shown
// so far. Several times jumped over are one firing: an instant comes once. A
// range of hours (9-17) is fixed because it names its hours as a list does.
//
// Cadence: the hour varies. It fires at each real instant at which the local
// clock matches, so in both passes of an hour that comes twice, and nothing is
// made up for an hour that never came: */15 goes on every fifteen minutes of real
// time.
//
// Mixed: the hours are named, the minute or second varies (*/10 9-17). Within its
// hours it is a cadence, both passes: who asks for every minute of an hour
// watches something for as long as the clock says so. But if the clock jumps over
// all it had to do in a named hour, it fires once, at the first instant after the
// jump, so that a day on which it should run is never silent.
//
// A date that does not exist (30 December 2011 in Samoa) has no firing of any
// kind. "@every" knows no clock change: it counts seconds.
//
// Instants are whole seconds up to the end of the year 9999 in UTC; only @at and
// the anchor of @every may have microseconds.
package cron
