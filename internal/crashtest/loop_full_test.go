//go:build failpoint

package crashtest

// `make campaign` tries every pass of a loop.
const loopFirst, loopStride = 0, 1

// And every pass of a chat.
const chatFirst, chatStride, wacliStride, wacliPeople = 0, 1, 1, 2
