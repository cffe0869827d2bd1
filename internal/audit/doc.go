// Package audit keeps the record of who did what by whose leave, in a form that
// cannot be changed without it showing.
package audit
