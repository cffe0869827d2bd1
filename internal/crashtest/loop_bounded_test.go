//go:build !failpoint

package crashtest

// In the normal suite one pass of a loop of so many is tried.
const loopFirst, loopStride = 3, 17

// And one of a chat.
const chatFirst, chatStride = 5, 23
