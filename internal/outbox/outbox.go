package outbox

import (
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onefold-dev/onefold/internal/config"
	"github.com/onefold-dev/onefold/internal/destination"
	"github.com/onefold-dev/onefold/internal/fair"
	"github.com/onefold-dev/onefold/internal/gate"
	"github.com/onefold-dev/onefold/internal/group"
	"github.com/onefold-dev/onefold/internal/job"
	"github.com/onefold-dev/onefold/internal/task"
	"github.com/onefold-dev/onefold/internal/tracing"
)

// Limits of the outbox. SendLimit is from design section 8; the rest are defaults of [Opts].
const (
	// SendLimit is how long one delivery may take, from dial to the end of the answer.
	SendLimit = 28 * time.Second
	// Workers is how many wake-ups of effects one process should fetch at a time: room for thirty destinations that
	// hang, at perDestination each. A waiting delivery costs a goroutine and a connection, nothing else.
	Workers = 256

	perDestination = 8
	window         = 64
	sqlLockTimeout = 2 * time.Second
	sqlTimeout     = 5 * time.Second
)

// Opts set up an Outbox. A process that only settles tasks (the API) needs Config alone.
type Opts struct {
	// Config is the configuration. Required.
	Config *config.Config
	// Destinations are those of the file and the stored ones. Nil: those of Config alone.
	Destinations *destination.Book
	// SQLLockTimeout and SQLTimeout bound one sql effect. Default 2 s and 5 s.
	SQLLockTimeout, SQLTimeout time.Duration
	// Window is how many due or delivering effects of one destination hold a wake-up at a time, over all processes. The
	// others wait without one until an outcome or the sweep wakes them. Default 64.
	Window int

	// Pool is where deliveries are recorded. Nil: this process does not deliver.
	Pool *pgxpool.Pool
	Log  *slog.Logger
	// Notify hears of queues that got new rows. Nil: nobody hears, and they wait for a poll.
	Notify *job.Notifier
	// Version and Region tell receivers what calls, and from where. Default "dev" and nothing.
	Version, Region string
	// Gates say when nothing is to be begun at a destination. Nil: everything is open and nothing bounded.
	Gates *gate.Board
	// Fair gives follow-up tasks their places. Nil: the order in which they are made.
	Fair *fair.Clock
	// Ended says whether the process of that identity has ended, as far as this machine can tell. Nil: it never can.
	Ended func(identity string) bool
	// Traces makes the spans of deliveries. Nil: there are none.
	Traces *tracing.Tracer
	// Senders deliver effects, by type.
	Senders map[string]Sender
	// Incarnation is the process's present one; it changes after a missed lease, and is the zero ID while there is none.
	Incarnation func() task.ID
	// MaySend says whether the heartbeat is young enough to begin something outside. Nil: always.
	MaySend func() bool
	// Clock runs on while the machine sleeps. Nil: Go's monotonic clock.
	Clock func() time.Duration
	// PerDestination bounds the deliveries in flight in this process to a destination that names no concurrency of its
	// own. Default 8.
	PerDestination int
	// Random gives numbers in [0,1) for jitter. Nil: math/rand.
	Random func() float64
}

func (o *Opts) defaults() {
	if o.SQLLockTimeout <= 0 {
		o.SQLLockTimeout = sqlLockTimeout
	}
	if o.SQLTimeout <= 0 {
		o.SQLTimeout = sqlTimeout
	}
	if o.Window <= 0 {
		o.Window = window
	}
	if o.PerDestination <= 0 {
		o.PerDestination = perDestination
	}
	if o.Ended == nil {
		o.Ended = func(string) bool { return false }
	}
	if o.Version == "" {
		o.Version = "dev"
	}
	if o.MaySend == nil {
		o.MaySend = func() bool { return true }
	}
	if o.Clock == nil {
		start := time.Now()
		o.Clock = func() time.Duration { return time.Since(start) }
	}
	if o.Random == nil {
		o.Random = task.Random
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Outbox inserts effects with their outcomes and delivers them. It is safe for concurrent use.
type Outbox struct {
	Opts

	marks    *group.Group[*claim, *claimed]
	outcomes *group.Group[*ending, bool]
	flights  *flights
	strays   strays
	queued   queued
	signed   signed
}

// New makes an outbox; one with a Pool has to be closed.
func New(opts Opts) *Outbox {
	opts.defaults()
	if opts.Destinations == nil {
		opts.Destinations = destination.New(destination.Opts{Config: opts.Config, Log: opts.Log})
	}
	o := &Outbox{Opts: opts, flights: newFlights()}
	if o.Pool != nil {
		o.marks = group.New(o.flushMarks, nil, nil)
		o.outcomes = group.New(o.flushOutcomes, nil, nil)
	}
	return o
}

// destination is where effects of that name go, or nil where this process cannot send there.
func (o *Outbox) destination(name string) *config.Destination { return o.Destinations.Usable(name) }

// Close serves what is queued. The caller has stopped fetching wake-ups and waited for those at work.
func (o *Outbox) Close() {
	if o.Pool != nil {
		o.marks.Close()
		o.outcomes.Close()
	}
}

func (o *Outbox) notify(queues ...string) {
	if o.Notify != nil {
		o.Notify.Queues(queues...)
	}
}
