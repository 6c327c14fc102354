// Package pg starts and stops a Postgres cluster of our own, for `onefold dev`,
// the demo and the tests.
//
// It is no part of a production deployment: there Postgres is somebody else's
// and reaches onefold as a database URL. A caller that was given such a URL uses
// it as it is and never comes here.
//
// A cluster belongs to the process that started it. It ends when that process
// stops it, when the context given to Start ends, and also when the process is
// killed without a chance to clean up: on Linux the kernel then signals
// Postgres, and on every system a small watching shell does.
package pg
