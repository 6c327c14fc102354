package pg

import "syscall"

// dieWithParent has the kernel send sig to the child when the thread that
// started it ends; process.go keeps that thread for as long as the child runs.
func dieWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) {
	attr.Pdeathsig = sig
}
