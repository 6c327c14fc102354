package proc

import "syscall"

// dieWithParent has the kernel kill the child when the thread that started it
// ends, also while the child is stopped.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
