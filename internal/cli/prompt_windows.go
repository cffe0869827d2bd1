package cli

import "os"

// openTTY opens the console of this process.
func openTTY() (*os.File, error) { return os.OpenFile("CONIN$", os.O_RDWR, 0) }
