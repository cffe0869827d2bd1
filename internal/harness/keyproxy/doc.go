// Package keyproxy keeps the API keys of coding agents away from them. A program is given
// a random token and the address of a proxy on this machine in their place; the proxy
// knows which token stands for which key and which address, and puts the key in on the
// way out. Whatever the program runs or starts can read the token from its environment,
// and has nothing once the run is over.
//
// What a token lets: any request at or below one base address, with its key, while its run
// lasts. Nothing else: no other host, no path above the base, no redirect that is followed,
// no credential of the client's own beside the key.
//
// Nothing here is durable. A daemon that dies takes its tokens and its programs along, and
// a run that goes on is given a new token.
package keyproxy
