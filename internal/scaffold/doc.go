// Package scaffold makes the project that an author of a loop begins with, and checks a
// manifest before it is signed. A project has everything that its build needs: the kit is in
// its vendor directory, so nothing is fetched. Nothing that is there already is written over.
package scaffold
