package store

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrCommitWarned says that a COMMIT was answered, but with the warning that
// the wait for the standbys was cut short: it stands here, and may be gone
// after a failover. It counts as unclear.
var ErrCommitWarned = errors.New("committed, but not known to be on a standby")

// warnedKey is where NoteNotice leaves its mark among a connection's data.
const warnedKey = "onefold.commit_warned"

// NoteNotice is the OnNotice of every connection that commits. It marks the
// connection when the server says that a commit did not wait for its standbys
// to the end. The server's routine is compared, for its message is translated.
func NoteNotice(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		c.CustomData()[warnedKey] = true
	}
}

// CommitWarned says whether a commit since the last call was marked by
// NoteNotice, and takes the mark away. Call it after each commit that must be
// durable, on the connection that committed, before that goes back to its pool.
func CommitWarned(conn *pgx.Conn) bool {
	data := conn.PgConn().CustomData()
	warned := data[warnedKey] != nil
	delete(data, warnedKey)
	return warned
}
