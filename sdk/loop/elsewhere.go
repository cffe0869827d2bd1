//go:build !wasip1

package loop

// host answers calls outside of WebAssembly, where there is no host. It lets a loop's
// package be compiled, vetted and its own logic tested with plain Go.
func host(name string, _ []byte) (status int32, answer []byte) {
	return 1, []byte("there is no host outside of WebAssembly: " + name + " was not called")
}
