package channel

// follow shows that an answer is being written while a turn runs.
func (l *line) follow(run string, m Received) {}
