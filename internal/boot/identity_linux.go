package boot

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Identity tells this process from every other, now and later: the machine since it started, the space its process ids
// belong to, its id there, and when it began, for ids are used again. It is "" where this cannot be told.
func Identity() string {
	space, ok := pidSpace()
	began, alive := beganAt(os.Getpid())
	if !ok || !alive {
		return ""
	}
	return fmt.Sprintf("%s/%d/%s", space, os.Getpid(), began)
}

// Ended says whether the process of that identity has ended. It is true only where this is known: of a process of this
// machine, in the same space of process ids. A lapsed lease is no such knowledge: a stopped process can go on.
func Ended(identity string) bool {
	cut := strings.LastIndexByte(identity, '/')
	if cut < 0 {
		return false
	}
	rest, began := identity[:cut], identity[cut+1:]
	cut = strings.LastIndexByte(rest, '/')
	if cut < 0 {
		return false
	}
	pid, err := strconv.Atoi(rest[cut+1:])
	space, ok := pidSpace()
	if err != nil || pid <= 0 || !ok || rest[:cut] != space {
		return false
	}
	now, alive := beganAt(pid)
	return !alive || now != began
}

// pidSpace names the machine since it started, and the space that this process's id belongs to.
func pidSpace() (string, bool) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", false
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", false
	}
	return strings.TrimSpace(string(boot)) + "/" + space, true
}

// beganAt is when a process began, in ticks since the machine started; alive is false when there is none of that id, or
// only what is left of one until its parent looks. A process whose file cannot be read counts as alive, unless /proc
// itself shows that it is not there.
func beganAt(pid int) (began string, alive bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if os.IsNotExist(err) {
		_, self := os.Stat("/proc/self/stat")
		return "", self != nil
	}
	if err != nil {
		return "", true
	}
	// The name stands in parentheses and may hold anything: what follows the last one counts.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return "", true
	}
	return fields[19], fields[0] != "Z" && fields[0] != "X"
}
