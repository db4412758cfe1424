package run

import "syscall"

// dieWithParent ends the child when the test process dies, so that a test that is cut off leaves nothing behind.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
