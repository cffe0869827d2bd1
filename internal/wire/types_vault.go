package wire

import "fmt"

// Confidential is a text that prints as "(hidden)". On the wire it is itself: the
// socket is the operator's.
type Confidential string

// Format hides the text from every verb.
func (c Confidential) Format(f fmt.State, _ rune) {
	if c != "" {
		fmt.Fprint(f, "(hidden)")
	}
}

// VaultStatus tells what opens the vault. No secret is in it.
type VaultStatus struct {
	Fingerprint string      `json:"fingerprint"`         // of the public key; empty for a vault of before there was a vault file
	Generation  int64       `json:"generation"`          // one more with every change
	Source      string      `json:"source"`              // vault.source: auto, file, passphrase, env, systemd, keyring
	Open        bool        `json:"open"`                // the daemon has it open
	OpenedBy    string      `json:"opened_by,omitempty"` // file, passphrase, keyring, recovery: what opened it at the daemon's start
	From        string      `json:"from,omitempty"`      // where that came from
	Wraps       []VaultWrap `json:"wraps"`               // what opens it
	Notes       []string    `json:"notes"`               // what was found and mended at the start
	Exposed     []string    `json:"exposed"`             // what this does not protect against
}

// VaultWrap is one thing that opens the vault.
type VaultWrap struct {
	Kind       string `json:"kind"`                 // file, passphrase, recovery, keyring
	MadeAt     int64  `json:"made_at"`              // Unix µs; 0: before there was a vault file
	Parameters string `json:"parameters,omitempty"` // of a passphrase
	Account    string `json:"account,omitempty"`    // in the keyring
}

// VaultPassphraseRequest sets or changes the passphrase.
type VaultPassphraseRequest struct {
	Passphrase  Confidential `json:"passphrase"`              // the new one
	KeepKeyFile bool         `json:"keep_key_file,omitempty"` // the key file goes on opening the vault
}

// VaultRotateRequest makes new keys for what opens the vault.
type VaultRotateRequest struct {
	To         string       `json:"to,omitempty"`         // file or keyring: that alone opens it afterwards; empty: what opens it now
	Passphrase Confidential `json:"passphrase,omitempty"` // the present one, where it cannot be found
}

// VaultRecoverRequest opens the vault by its recovery key and sets anew what opens it.
type VaultRecoverRequest struct {
	RecoveryKey Confidential `json:"recovery_key"`
	Passphrase  Confidential `json:"passphrase,omitempty"` // the new one; empty: a new key file
}

// VaultRecoveryKeyResult holds a new recovery key, which is told only here.
type VaultRecoveryKeyResult struct {
	RecoveryKey string      `json:"recovery_key"` // in groups, with a checksum; the one before is good no longer
	Vault       VaultStatus `json:"vault"`
}
