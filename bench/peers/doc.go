// Package peers measures a step of ombud beside a step of other durable engines in
// one run, on the same disk and with the same durability. It is a module of its own,
// so that the peers stay out of ombud's go.mod: make bench-peers.
package peers
