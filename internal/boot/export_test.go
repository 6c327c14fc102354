package boot

// BeganAt is when a process began.
func BeganAt(pid int) string {
	began, _ := beganAt(pid)
	return began
}
