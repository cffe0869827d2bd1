// Package arch holds, as tests, what the compiler does not: which package may
// import which, and the few things no package may do. The table is table_test.go;
// a new package, edge or exception is a line there, with its reason.
package arch
