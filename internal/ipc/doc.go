// Package ipc serves package wire over a unix socket.
//
// A request is handled in a goroutine of its own, so a connection may have many
// at once (Config.MaxRequests; one over it is answered as unavailable). What a
// request outlives:
//
//	                       answered method            streaming method
//	client disconnects     goes on (Gone tells it)    its context ends
//	request.cancel         its context ends           its context ends
//	server stops           its context ends           its context ends
//
// No context that ends here undoes durable work: handlers hand work over as rows
// and only watch it.
//
// Slow readers: frames are written straight to the socket, there is no queue. A
// stream whose client does not read waits in its send, and so do the other
// requests of that connection, nobody else; a handler must therefore not hold a
// lock or a transaction while it sends. A client that takes nothing for
// Config.WriteTimeout loses the connection.
//
// A frame that cannot be used is answered with an error and the connection goes
// on, as long as it is known where the next frame begins.
package ipc
