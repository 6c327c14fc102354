package boot

import (
	"fmt"
	"strconv"
	"time"

	"github.com/onefold-dev/onefold/migrations"
)

// The time limits of every connection. A process that is stopped inside a
// transaction would otherwise keep its locks for ever, and one whose machine is
// gone its place.
const (
	idleInTransaction  = 5 * time.Second // at most; a third of the lease where that is less
	lockTimeout        = 5 * time.Second
	statementTimeout   = 30 * time.Second
	tcpUserTimeout     = 10 * time.Second
	keepalivesIdle     = 30 * time.Second
	keepalivesInterval = 10 * time.Second
	keepalivesCount    = 3
	// anyLimit is the longest an operator could want; what must not be is none.
	anyLimit = 10 * time.Minute
)

const isolation = "read committed"

// setting is one that every connection must have.
type setting struct {
	name, value string
	unit        time.Duration // of value; 0 where it is no time
	most        time.Duration // that is accepted where another was set
	tcp         bool          // has a meaning over TCP only
	linux       bool          // is known to servers on Linux only
	wish        bool          // makes things fast, and nothing depends on it
}

func settings(lease time.Duration) []setting {
	ms := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	s := func(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
	idle := min(idleInTransaction, lease/3)
	return []setting{
		{name: "idle_in_transaction_session_timeout", value: ms(idle), unit: time.Millisecond, most: idle},
		{name: "lock_timeout", value: ms(lockTimeout), unit: time.Millisecond, most: anyLimit},
		{name: "statement_timeout", value: ms(statementTimeout), unit: time.Millisecond, most: anyLimit},
		{name: "tcp_user_timeout", value: ms(tcpUserTimeout), unit: time.Millisecond, most: anyLimit, tcp: true, linux: true},
		{name: "tcp_keepalives_idle", value: s(keepalivesIdle), unit: time.Second, most: anyLimit, tcp: true},
		{name: "tcp_keepalives_interval", value: s(keepalivesInterval), unit: time.Second, most: anyLimit, tcp: true},
		{name: "tcp_keepalives_count", value: strconv.Itoa(keepalivesCount), tcp: true},
		// Our own transactions name it; River's and single statements rely on it.
		{name: "default_transaction_isolation", value: isolation},
		// A connection keeps the plans it made while the tables were small, until
		// somebody analyses them: a burst into a small table would read all of it
		// for each submit and each step of a task. All our statements have an index.
		{name: "enable_seqscan", value: "off", wish: true},
		// Up to Postgres 17 a plan that must read a whole table all the same looks
		// dear enough then to be compiled, which takes longer than it runs.
		{name: "jit", value: "off", wish: true},
	}
}

// Settings are what the connections of a process with that lease must have, for
// the role it logs in as: through a pooler a process cannot set them itself.
func Settings(lease time.Duration) []migrations.Setting {
	var out []migrations.Setting
	for _, s := range settings(lease) {
		out = append(out, migrations.Setting{Name: s.name, Value: s.value})
	}
	return out
}

// wrong says what is wrong with the value a connection has, or "".
func (s setting) wrong(have string, overTCP, onLinux bool) string {
	if s.wish || s.tcp && !overTCP || s.linux && !onLinux {
		return "" // a local socket, or a system without it
	}
	if s.name == "default_transaction_isolation" {
		if have == s.value {
			return ""
		}
		return fmt.Sprintf("is %q, %q is needed", have, s.value)
	}
	n, err := strconv.ParseInt(have, 10, 64)
	if s.unit == 0 {
		if err == nil && n > 0 {
			return ""
		}
		return "is " + have + ", a number above 0 is needed"
	}
	d := time.Duration(n) * s.unit
	switch {
	case err != nil || d <= 0:
		return fmt.Sprintf("is off, at most %s is needed", s.most)
	case d > s.most:
		return fmt.Sprintf("is %s, at most %s is needed", d, s.most)
	}
	return ""
}
