package gate

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/internal/store"
)

const (
	refreshEvery   = time.Second
	refreshTimeout = 5 * time.Second
)

// Run keeps the copy current until ctx ends: it reads every second, and at once
// when another process says that something changed. It also releases what was
// held for a credential that has been changed here.
func (b *Board) Run(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.limits.run(ctx)
	}()
	defer func() { <-done }()
	l := listener{b: b}
	defer l.close()
	for ctx.Err() == nil {
		l.await(ctx)
		if ctx.Err() != nil {
			return
		}
		if err := b.look(ctx); err != nil && ctx.Err() == nil {
			b.Log.Warn("gates not read", "error", err)
		}
	}
}

func (b *Board) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	if b.Also != nil {
		if err := b.Also(ctx); err != nil {
			return err
		}
	}
	return b.Refresh(ctx)
}

// listener waits for hints on a connection of its own.
type listener struct {
	b    *Board
	conn *pgx.Conn
	next time.Time // no try to connect before it
}

// await returns after a hint, or after refreshEvery.
func (l *listener) await(ctx context.Context) {
	limit, cancel := context.WithTimeout(ctx, refreshEvery)
	defer cancel()
	if l.conn == nil && l.b.Connect != nil && time.Now().After(l.next) {
		l.connect(limit)
	}
	if l.conn == nil {
		<-limit.Done()
		return
	}
	if _, err := l.conn.WaitForNotification(limit); err != nil && limit.Err() == nil {
		l.b.Log.Debug("listening for gates ended", "error", err)
		l.close()
		<-limit.Done()
	}
	if l.conn != nil && l.conn.IsClosed() { // a wait that is cut short closes some connections
		l.conn = nil
	}
}

func (l *listener) connect(ctx context.Context) {
	l.next = time.Now().Add(refreshEvery)
	conn, err := l.b.Connect(ctx)
	if err != nil {
		l.b.Log.Debug("not listening for gates", "error", err)
		return
	}
	if err := store.ListenGates(ctx, conn); err != nil {
		l.b.Log.Debug("not listening for gates", "error", err)
		_ = conn.Close(ctx)
		return
	}
	l.conn = conn
}

func (l *listener) close() {
	if l.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = l.conn.Close(ctx)
	l.conn = nil
}
