// Package laws holds one test for each of the ten laws of the design, against the
// whole daemon: in this process, or as a process of its own that is killed.
package laws
