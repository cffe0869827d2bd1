// Package httpd is the one network listener: a loopback port with what other programs
// ask of a daemon, and with what is mounted on it.
//
// # What it takes
//
// A request names a host that is this machine's loopback or one the configuration names:
// so no page of the web that points its name here (DNS rebinding) is answered. A browser
// says from where a request comes; only the listener's own pages may send one. A token in
// a URL is refused, for URLs are written into logs. Heads, bodies, connections and the time
// of everything are bounded. Package config refuses an address beyond loopback without an
// admin token and TLS, or a proxy that has it.
//
// # What it answers
//
//	/health  /healthz   the process answers
//	/ready   /readyz    200, or 503 with the reasons
//	/metrics            for Prometheus; with the admin token unless only this machine can ask
//
// All else is mounted, or not_found. An error is {"error":{"class":…,"message":…}} with the
// status of package fault. Whatever is answered goes through the redactor.
//
// # A port that is taken
//
// An address that nobody chose is tried again and again, for a second instance is no
// mistake; State says so meanwhile, and who has it, where that can be seen. One that the
// configuration names keeps the daemon from starting.
package httpd
