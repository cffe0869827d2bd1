//go:build unix

package vault

const modesMatter = true
