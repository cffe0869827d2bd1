//go:build failpoint

package crashtest

// `make campaign` tries every pass of a loop.
const loopFirst, loopStride = 0, 1

// And every pass of a chat. It takes a minute and a half until it is sure that wacli sent
// nothing, so there every third is tried, and each death right after a send.
const chatFirst, chatStride, wacliStride, wacliPeople = 0, 1, 3, 2

// And every pass of the delegations, and a third of the first half with a second death.
const coderFirst, coderStride, coderTwice = 0, 1, 3
