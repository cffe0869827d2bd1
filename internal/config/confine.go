package config

// What happens where a program cannot be confined.
const (
	EnforceStrict = "strict" // it does not run
	EnforceBest   = "best"   // it runs with what there is
	EnforceOff    = "off"    // programs are not confined
)

// What a program may reach of the network.
const (
	NetworkNone  = none
	NetworkProxy = "proxy" // what the fetch tool may reach, through ombud's proxy
	NetworkAll   = all
)

// Confine says how programs are confined.
type Confine struct {
	Enforce string // strict
}
