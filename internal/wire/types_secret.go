package wire

// Secret is what is told of a secret. Its value is told by nothing.
type Secret struct {
	Name        string   `json:"name"`
	Version     int64    `json:"version"`           // how often it was set
	Hosts       []string `json:"hosts"`             // the only ones it is sent to; empty: it is bound to none
	SetBy       string   `json:"set_by"`            // who set it
	SetAt       int64    `json:"set_at"`            // Unix µs
	UsedAt      int64    `json:"used_at,omitempty"` // Unix µs; absent: never, since it was set
	Fingerprint string   `json:"fingerprint"`       // the same for the same value in this store
}

// SecretSetRequest sets a secret, whatever it was before.
type SecretSetRequest struct {
	Name  string   `json:"name"`
	Value []byte   `json:"value"`           // base64
	Hosts []string `json:"hosts,omitempty"` // the only ones it is sent to: host, *.domain, each perhaps with :port
}

// SecretSetResult is the secret as it is kept.
type SecretSetResult struct {
	Secret   Secret   `json:"secret"`
	Warnings []string `json:"warnings"` // what to know about the value
	Notes    []string `json:"notes"`    // what takes it up, and when
}

// SecretListResult answers secret.list.
type SecretListResult struct {
	Secrets []Secret `json:"secrets"` // by name
}

// SecretRemoveRequest names a secret.
type SecretRemoveRequest struct {
	Name string `json:"name"`
}

// SecretRemoveResult is the secret that was removed.
type SecretRemoveResult struct {
	Secret Secret   `json:"secret"`
	Notes  []string `json:"notes"` // what named it
}
