package pg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// MinVersion is the oldest major version of Postgres that onefold runs on.
const MinVersion = 15

// ErrMissing is what Find and Start return, wrapped, when this machine has no
// usable Postgres server. The message names the command that installs one.
var ErrMissing = errors.New("no Postgres server found")

// binaries is one installation of the Postgres server.
type binaries struct {
	dir     string
	version int // major
}

// Find returns the folder of the Postgres server's programs and its major
// version. It looks on PATH first, then where Linux distributions, Homebrew and
// Postgres.app put them, newest first, and passes over those older than
// MinVersion. The error wraps ErrMissing when none is left.
func Find() (binDir string, version int, err error) {
	return findIn(searchDirs())
}

func findIn(dirs []string) (binDir string, version int, err error) {
	all := installed(dirs)
	for _, b := range all {
		if b.version >= MinVersion {
			return b.dir, b.version, nil
		}
	}
	return "", 0, missing(all)
}

// findVersion returns the programs of exactly the given major version, which is
// what a data folder made by that version needs.
func findVersion(version int) (string, error) {
	all := installed(searchDirs())
	for _, b := range all {
		if b.version == version {
			return b.dir, nil
		}
	}
	return "", fmt.Errorf("the data folder was made by Postgres %d, which is not installed here (found: %s): "+
		"install that version, or move the folder away to start with an empty database", version, describe(all))
}

func missing(found []binaries) error {
	if len(found) == 0 {
		return fmt.Errorf("%w: install it with\n    %s\nor point DATABASE_URL at a server of version %d or newer",
			ErrMissing, InstallCommand(), MinVersion)
	}
	return fmt.Errorf("%w that is new enough: version %d or newer is needed, here is only %s; install it with\n    %s\n"+
		"or point DATABASE_URL at such a server", ErrMissing, MinVersion, describe(found), InstallCommand())
}

func describe(found []binaries) string {
	if len(found) == 0 {
		return "none"
	}
	var s string
	for i, b := range found {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%d in %s", b.version, b.dir)
	}
	return s
}

// searchDirs lists the folders that may hold the server, best first.
func searchDirs() []string {
	var dirs []string
	if p, err := exec.LookPath("postgres"); err == nil {
		// On PATH there is often only a link; initdb stands beside the real file.
		if real, err := filepath.EvalSymlinks(p); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
		dirs = append(dirs, filepath.Dir(p))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
		"/usr/pgsql-*/bin",                                   // packages of the Postgres project for RHEL
		"/usr/libexec/postgresql*",                           // Alpine
		"/opt/homebrew/opt/postgresql*/bin",                  // Homebrew, Apple silicon
		"/usr/local/opt/postgresql*/bin",                     // Homebrew, Intel
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",     // Homebrew on Linux
		"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			continue // only a malformed pattern fails, and these are constants
		}
		slices.SortStableFunc(found, func(a, b string) int { return lastNumber(b) - lastNumber(a) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// installed keeps the folders that really hold a server and asks each for its version.
func installed(dirs []string) []binaries {
	var found []binaries
	for _, dir := range dirs {
		if slices.ContainsFunc(found, func(b binaries) bool { return b.dir == dir }) {
			continue
		}
		if !executable(filepath.Join(dir, "initdb")) {
			continue
		}
		out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
		if err != nil {
			continue
		}
		if v, ok := parseVersion(string(out)); ok {
			found = append(found, binaries{dir: dir, version: v})
		}
	}
	return found
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// parseVersion reads the major version out of what `postgres --version` prints,
// such as "postgres (PostgreSQL) 17.2 (Debian 17.2-1)" or "... 18beta1".
func parseVersion(out string) (int, bool) {
	m := versionPattern.FindStringSubmatch(out)
	if m == nil {
		return 0, false
	}
	v, err := strconv.Atoi(m[1])
	return v, err == nil
}

var numberPattern = regexp.MustCompile(`\d+`)

// lastNumber is the last number in a path: the version, in all folders we search.
func lastNumber(path string) int {
	all := numberPattern.FindAllString(path, -1)
	if len(all) == 0 {
		return 0
	}
	n, err := strconv.Atoi(all[len(all)-1])
	if err != nil {
		return 0
	}
	return n
}
