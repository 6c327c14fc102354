package pg

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is the system user that Postgres runs as when we are root, which
// Postgres itself refuses to be. nil means: as ourselves.
type account struct {
	name     string
	uid, gid uint32
}

func (a *account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: a.uid, Gid: a.gid}
}

func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// pickAccount chooses the user for a cluster in dir: the owner of data that is
// there already, else postgres, else nobody.
func pickAccount(dir string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	if info, err := os.Stat(filepath.Join(dir, "data")); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			return &account{name: "uid " + strconv.Itoa(int(st.Uid)), uid: st.Uid, gid: st.Gid}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			continue
		}
		return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("run as root, but Postgres must not be root, and there is no user postgres or nobody to run it as: create one, or start onefold as another user")
}

// folder is where one cluster lives: data/, the superuser's password, the last
// port, and a lock held for as long as a process of ours uses it. Run as root, we
// keep all but data/ ours: what Postgres' user could replace by a link, we would
// follow with root's rights.
type folder struct {
	path  string
	as    *account
	lock  *os.File
	owner bool // made by us for this run only, to be removed
}

// openFolder prepares dir. When Postgres' user cannot get there it uses a folder
// below the system's temporary one instead and says so through note.
func openFolder(dir string, note func(string, ...any)) (*folder, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolve the data folder %s: %w", dir, err)
	}
	as, err := pickAccount(abs)
	if err != nil {
		return nil, err
	}
	f := &folder{path: abs, as: as}
	if err := f.make(); err != nil {
		return nil, err
	}
	if !f.reachable() {
		sum := sha256.Sum256([]byte(abs))
		f.path = filepath.Join(os.TempDir(), "onefold-pg-"+hex.EncodeToString(sum[:6]))
		if err := f.make(); err != nil {
			return nil, err
		}
		if !f.reachable() {
			return nil, fmt.Errorf("the user %s, as whom Postgres runs, can reach neither %s nor %s: "+
				"choose a data folder whose parents that user may enter", as.name, abs, f.path)
		}
		note("the user %s, as whom Postgres runs, cannot reach %s; the data is in %s instead", as.name, abs, f.path)
	}
	if err := f.acquire(); err != nil {
		return nil, err
	}
	return f, nil
}

// make creates the folder, private to us and Postgres' user. One that belongs to
// a third user is refused: below a shared temporary folder it may be a trap.
func (f *folder) make() error {
	if err := os.MkdirAll(f.path, 0o700); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	info, err := os.Lstat(f.path)
	if err != nil {
		return fmt.Errorf("look at the data folder: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("the data folder %s is not a folder", f.path)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("the data folder %s belongs to user id %d: choose another one", f.path, st.Uid)
	}
	if f.as == nil {
		return nil
	}
	if err := errors.Join(os.Chown(f.path, 0, int(f.as.gid)), os.Chmod(f.path, 0o710)); err != nil {
		return fmt.Errorf("let Postgres' user into the data folder: %w", err)
	}
	return nil
}

// reachable tries it as Postgres' user: permission bits alone would miss ACLs
// and mounts.
func (f *folder) reachable() bool {
	if f.as == nil {
		return true
	}
	cmd := exec.Command("/bin/sh", "-c", `cd -- "$1"`, "sh", f.path)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: f.as.credential()}
	return cmd.Run() == nil
}

// acquire takes the folder's lock, which the kernel frees when we end, however we do.
func (f *folder) acquire() error {
	lock, err := os.OpenFile(filepath.Join(f.path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the data folder's lock: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		return fmt.Errorf("the data folder %s is in use by another onefold process: stop it, or choose another folder", f.path)
	}
	f.lock = lock
	return nil
}

func (f *folder) release() error {
	var err error
	if f.owner {
		err = os.RemoveAll(f.path)
	}
	return errors.Join(err, f.lock.Close())
}

func (f *folder) data() string { return filepath.Join(f.path, "data") }

// init makes the cluster unless it is there, in a folder that gets its final
// name only when whole: a process killed half-way leaves nothing that looks
// like a cluster. It returns the version the cluster needs.
func (f *folder) init(ctx context.Context) (binDir string, err error) {
	if b, err := os.ReadFile(filepath.Join(f.data(), "PG_VERSION")); err == nil {
		v, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			return "", fmt.Errorf("read the version of the cluster in %s: %w", f.path, err)
		}
		return findVersion(v)
	}
	binDir, _, err = Find()
	if err != nil {
		return "", err
	}
	if err := f.writeFile("password", rand.Text()); err != nil {
		return "", err
	}
	password := filepath.Join(f.path, "password")
	if err := f.as.own(password); err != nil {
		return "", fmt.Errorf("let initdb read the cluster's password: %w", err)
	}
	fresh := f.data() + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return "", fmt.Errorf("remove what an unfinished start left: %w", err)
	}
	if err := errors.Join(os.Mkdir(fresh, 0o700), f.as.own(fresh)); err != nil {
		return "", fmt.Errorf("make the folder of the cluster: %w", err)
	}
	args := []string{
		"-D", fresh, "-U", superuser, "-E", "UTF8", "--locale=C",
		"-A", "scram-sha-256", "--pwfile", password,
	}
	if f.owner {
		args = append(args, "--no-sync") // thrown away anyway; the server itself still syncs
	}
	cmd := exec.CommandContext(ctx, filepath.Join(binDir, "initdb"), args...)
	cmd.Dir = f.path
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: f.as.credential(), Setpgid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make a cluster in %s: %w\n%s", f.path, err, out)
	}
	if err := os.Rename(fresh, f.data()); err != nil {
		return "", fmt.Errorf("put the new cluster in place: %w", err)
	}
	return binDir, nil
}

func (f *folder) writeFile(name, text string) error {
	path := filepath.Join(f.path, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the cluster's %s: %w", name, err)
	}
	return nil
}

func (f *folder) readFile(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(f.path, name))
	if err != nil {
		return "", fmt.Errorf("read the cluster's %s: %w", name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// ephemeralPrefix marks folders that belong to one run.
const ephemeralPrefix = "onefold-pg-run-"

// shmRoom is the free memory asked of /dev/shm before a cluster goes there: a
// test run writes up to a gigabyte of log before Postgres recycles it.
const shmRoom = 2 << 30

// ephemeralParent is a memory file system where there is room, so that fsync,
// which stays on, costs little; else the temporary folder.
func ephemeralParent() string {
	var st syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &st); err == nil && uint64(st.Bavail)*uint64(st.Bsize) >= shmRoom {
		return "/dev/shm"
	}
	return os.TempDir()
}

func ephemeralFolder(note func(string, ...any)) (*folder, error) {
	parent := ephemeralParent()
	sweep(parent)
	dir, err := os.MkdirTemp(parent, ephemeralPrefix)
	if err != nil {
		return nil, fmt.Errorf("make a folder for a cluster: %w", err)
	}
	f, err := openFolder(dir, note)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if f.path != dir {
		err = os.RemoveAll(dir)
	}
	f.owner = true
	return f, err
}

// sweep removes run folders whose process is gone without cleaning up, seen by
// their lock being free: all of a process group was killed, the watcher with it.
// It is a courtesy: what it cannot remove it leaves.
func sweep(parent string) {
	old, err := filepath.Glob(filepath.Join(parent, ephemeralPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range old {
		if info, err := os.Stat(dir); err != nil || time.Since(info.ModTime()) < time.Minute {
			continue // perhaps just being made, its lock not taken yet
		}
		lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
		if err != nil {
			continue // another user's, or not locked yet because it is being made
		}
		free := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
		if free && postmasterOf(filepath.Join(dir, "data")) == 0 {
			_ = os.RemoveAll(dir)
		}
		lock.Close()
	}
}
