//go:build !linux

package proc

import "syscall"

func dieWithParent(*syscall.SysProcAttr) {}
