//go:build !failpoint

package crashtest

// In the normal suite one pass of a loop of so many is tried.
const loopFirst, loopStride = 3, 17

// And one of a chat. It takes a minute and a half until it is sure that wacli sent nothing,
// so there one person writes, and the daemon dies right after each send.
const chatFirst, chatStride, wacliStride, wacliPeople = 5, 41, 1 << 20, 1

// And one of the delegations, and one with a second death.
const coderFirst, coderStride, coderTwice = 20, 47, 80
