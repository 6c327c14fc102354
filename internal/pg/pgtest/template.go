package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/onefold-dev/onefold/migrations"
)

// templateLock is the advisory lock under which a template is made: an arbitrary
// number, the same in all test binaries.
const templateLock = 0x0f01d7e57

var (
	templatesMu sync.Mutex
	templates   = map[string]string{} // superuser's URL -> name of the template there
)

// template returns the name of the migrated template database of the cluster at
// admin, making it when no test binary has made it yet.
func template(admin string) (string, error) {
	templatesMu.Lock()
	defer templatesMu.Unlock()
	if name, ok := templates[admin]; ok {
		return name, nil
	}
	sum, err := migrationsHash()
	if err != nil {
		return "", err
	}
	name := "template_" + sum
	if err := makeTemplate(context.Background(), admin, name); err != nil {
		return "", err
	}
	templates[admin] = name
	return name, nil
}

// makeTemplate gives the database its name only when it is whole, so that one
// left half-way by a killed binary is never used.
func makeTemplate(ctx context.Context, admin, name string) error {
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", templateLock); err != nil {
		return fmt.Errorf("lock the making of the template: %w", err)
	}
	var exists bool
	err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists)
	if err != nil || exists {
		return err
	}
	half := name + "_half"
	for _, sql := range []string{"DROP DATABASE IF EXISTS " + half + " WITH (FORCE)", "CREATE DATABASE " + half + " TEMPLATE template0"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make the template: %w", err)
		}
	}
	dsn, err := withDatabase(admin, half)
	if err != nil {
		return err
	}
	if err := migrations.Up(ctx, dsn); err != nil {
		return fmt.Errorf("migrate the template: %w", err)
	}
	// Copying fails while anybody is connected to the original.
	for _, sql := range []string{
		"ALTER DATABASE " + half + " ALLOW_CONNECTIONS false",
		"SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '" + half + "'",
		"ALTER DATABASE " + half + " RENAME TO " + name,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("close the template: %w", err)
		}
	}
	return nil
}

// migrationsHash names the schema: the migrations' files, and go.mod for the
// version of River, whose own migrations are part of it.
func migrationsHash() (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(root, "migrations", "*"))
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, f := range append(files, filepath.Join(root, "go.mod")) {
		if info, err := os.Stat(f); err != nil || info.IsDir() {
			continue
		}
		b, err := os.ReadFile(f)
		if err != nil {
			return "", fmt.Errorf("read the migrations: %w", err)
		}
		fmt.Fprintf(h, "%s %d\n", filepath.Base(f), len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// moduleRoot is found from the working directory, which `go test` sets to the
// folder of the package under test.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "migrations")); err == nil {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
				return dir, nil
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no folder above the test holds go.mod and migrations/")
		}
		dir = parent
	}
}
