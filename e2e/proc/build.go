package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/onefold-dev/onefold/internal/casetest"
)

// Build says which programs a test runs. The zero value is what `make build`
// makes, except that it needs no version.
type Build struct {
	Tags string // as in go build -tags; "failpoints"
	Race bool
	// Commit is a commit of the history to build instead of what is here; see
	// [HasCommit].
	Commit string
}

var bins struct {
	mu   sync.Mutex
	root string
	made map[Build]*bin
}

type bin struct {
	once sync.Once
	dir  string
	err  error
}

const binPrefix = "onefold-e2e-"

// Main runs the tests of a package and removes what was built for them.
func Main(m *testing.M) {
	removeStale()
	code := m.Run()
	bins.mu.Lock()
	if bins.root != "" {
		_ = os.RemoveAll(bins.root)
	}
	bins.mu.Unlock()
	os.Exit(code)
}

// removeStale removes what test binaries built that were killed before they
// could do it themselves: the folders carry their process's number.
func removeStale() {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), binPrefix+"*"))
	for _, dir := range old {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), binPrefix), "-")
		pid, err := strconv.Atoi(number)
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.RemoveAll(dir)
		}
	}
}

// Bin builds api, worker and onefold, once a test binary for each Build, and
// returns the folder they are in.
func Bin(tb testing.TB, b Build) string {
	tb.Helper()
	bins.mu.Lock()
	if bins.made == nil {
		bins.made = map[Build]*bin{}
	}
	made := bins.made[b]
	if made == nil {
		made = &bin{}
		bins.made[b] = made
	}
	bins.mu.Unlock()
	made.once.Do(func() { made.dir, made.err = build(b) })
	if made.err != nil {
		tb.Fatalf("build the programs: %v", made.err)
	}
	return made.dir
}

func build(b Build) (string, error) {
	root, err := casetest.Root()
	if err != nil {
		return "", err
	}
	dir, err := folder()
	if err != nil {
		return "", err
	}
	if b.Commit != "" {
		if root, err = checkOut(root, b.Commit); err != nil {
			return "", err
		}
	}
	args := []string{"build", "-o", dir + "/"}
	if b.Tags != "" {
		args = append(args, "-tags", b.Tags)
	}
	if b.Race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "./cmd/api", "./cmd/worker", "./cmd/onefold")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return dir, nil
}

// HasCommit says whether the history that the tests run in reaches back to a
// commit: that of a shallow clone or an unpacked archive does not.
func HasCommit(commit string) bool {
	root, err := casetest.Root()
	if err != nil {
		return false
	}
	cmd := exec.Command("git", "cat-file", "-e", commit+"^{commit}")
	cmd.Dir = root
	return cmd.Run() == nil
}

// checkOut unpacks a commit into a folder of its own.
func checkOut(root, commit string) (string, error) {
	dir, err := folder()
	if err != nil {
		return "", err
	}
	archive := filepath.Join(dir, "source.tar")
	for _, cmd := range []*exec.Cmd{
		exec.Command("git", "archive", "--format=tar", "-o", archive, commit),
		exec.Command("tar", "-x", "-C", dir, "-f", archive),
	} {
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
		}
	}
	return dir, nil
}

func folder() (string, error) {
	bins.mu.Lock()
	defer bins.mu.Unlock()
	if bins.root == "" {
		root, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", binPrefix, os.Getpid()))
		if err != nil {
			return "", err
		}
		bins.root = root
	}
	return os.MkdirTemp(bins.root, "bin-")
}
