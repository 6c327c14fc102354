package pg

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// fakeInstall makes a folder that looks like an installation of one version.
func fakeInstall(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for name, script := range map[string]string{
		"initdb":   "#!/bin/sh\n",
		"postgres": "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + "'\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind(t *testing.T) {
	t.Parallel()
	old, beta, new := fakeInstall(t, "14.9"), fakeInstall(t, "18beta1"), fakeInstall(t, "17.2 (Debian 17.2-1)")
	empty := t.TempDir()
	for name, tt := range map[string]struct {
		dirs []string
		dir  string
		want int
	}{
		"the first that is new enough": {[]string{empty, old, new, beta}, new, 17},
		"a beta counts as its version": {[]string{beta, new}, beta, 18},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, version, err := findIn(tt.dirs)
			if dir != tt.dir || version != tt.want || err != nil {
				t.Errorf("got %s, %d, %v; want %s, %d", dir, version, err, tt.dir, tt.want)
			}
		})
	}
}

func TestFindMissing(t *testing.T) {
	t.Parallel()
	old := fakeInstall(t, "14.9")
	for name, tt := range map[string]struct {
		dirs []string
		says []string
	}{
		"none":    {nil, []string{installCommand(thisHost()), "DATABASE_URL"}},
		"too old": {[]string{old}, []string{"14 in " + old, strconv.Itoa(MinVersion) + " or newer", installCommand(thisHost())}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := findIn(tt.dirs)
			if !errors.Is(err, ErrMissing) {
				t.Fatalf("got %v, want ErrMissing", err)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("the message does not say %q:\n%v", s, err)
				}
			}
		})
	}
}

func TestInstallCommand(t *testing.T) {
	t.Parallel()
	has := func(names ...string) func(string) bool {
		return func(p string) bool { return strings.Contains(" "+strings.Join(names, " ")+" ", " "+p+" ") }
	}
	for name, tt := range map[string]struct {
		host host
		want string
	}{
		"macOS":          {host{goos: "darwin", has: has()}, "brew install postgresql@17"},
		"Debian as root": {host{goos: "linux", root: true, has: has("apt-get"), codename: "bookworm"}, "apt-get update && apt-get install -y postgresql"},
		"Debian":         {host{goos: "linux", has: has("apt-get"), codename: "bookworm"}, "sudo apt-get update && sudo apt-get install -y postgresql"},
		"old Ubuntu": {
			host{goos: "linux", root: true, has: has("apt-get"), codename: "jammy"},
			"apt-get update && apt-get install -y postgresql-common ca-certificates && /usr/share/postgresql-common/pgdg/apt.postgresql.org.sh -y && apt-get install -y postgresql-17",
		},
		"Fedora":   {host{goos: "linux", root: true, has: has("dnf"), id: "fedora", version: "42"}, "dnf install -y postgresql-server"},
		"Rocky 9":  {host{goos: "linux", root: true, has: has("dnf"), id: "rocky", version: "9.4"}, "dnf module enable -y postgresql:16 && dnf install -y postgresql-server"},
		"Rocky 10": {host{goos: "linux", root: true, has: has("dnf"), id: "rocky", version: "10.0"}, "dnf install -y postgresql-server"},
		"Alpine":   {host{goos: "linux", root: true, has: has("apk"), id: "alpine", version: "3.22"}, "apk add postgresql"},
		"Arch":     {host{goos: "linux", root: true, has: has("pacman"), id: "arch"}, "pacman -S --noconfirm postgresql"},
		"unknown":  {host{goos: "freebsd", has: has()}, "see https://www.postgresql.org/download/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := installCommand(tt.host); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestParseOSRelease(t *testing.T) {
	t.Parallel()
	id, version, codename := parseOSRelease("PRETTY_NAME=\"Debian GNU/Linux 12\"\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\nID=debian\n")
	if id != "debian" || version != "12" || codename != "bookworm" {
		t.Errorf("got %q, %q, %q", id, version, codename)
	}
}
