//go:build !linux

package pg

import "syscall"

// dieWithParent does nothing where the kernel offers nothing: the watching shell
// of watch.go does the work alone there.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
