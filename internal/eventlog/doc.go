// Package eventlog holds everything that happened, in commit order.
package eventlog
