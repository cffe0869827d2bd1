package confine

import (
	"os"
	"syscall"
)

const holding = "the process alone: what it starts goes on"

func groupAttributes() *syscall.SysProcAttr { return nil }

// These err only when the process has ended.

func askGroup(p *os.Process) { _ = p.Kill() }
func endGroup(p *os.Process) { _ = p.Kill() }

func exitOf(s *os.ProcessState) Exit { return Exit{Code: s.ExitCode()} }
