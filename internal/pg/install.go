package pg

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// host is what the install command depends on.
type host struct {
	goos     string
	root     bool
	has      func(program string) bool
	id       string // ID and VERSION_ID of /etc/os-release, empty elsewhere
	version  string
	codename string
}

func thisHost() host {
	h := host{goos: runtime.GOOS, root: os.Geteuid() == 0, has: func(p string) bool {
		_, err := exec.LookPath(p)
		return err == nil
	}}
	if b, err := os.ReadFile("/etc/os-release"); err == nil {
		h.id, h.version, h.codename = parseOSRelease(string(b))
	}
	return h
}

func parseOSRelease(text string) (id, version, codename string) {
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok {
			continue
		}
		value = strings.Trim(value, `"'`)
		switch name {
		case "ID":
			id = value
		case "VERSION_ID":
			version = value
		case "VERSION_CODENAME":
			codename = value
		}
	}
	return id, version, codename
}

// InstallCommand is the exact shell command that installs a Postgres server of
// MinVersion or newer on this machine.
func InstallCommand() string { return installCommand(thisHost()) }

// oldApt are the Debian and Ubuntu releases whose own package is older than
// MinVersion; there the Postgres project's package source is needed.
var oldApt = map[string]bool{"buster": true, "bullseye": true, "focal": true, "jammy": true}

func installCommand(h host) string {
	sudo := ""
	if !h.root {
		sudo = "sudo "
	}
	switch {
	case h.goos == "darwin":
		return "brew install postgresql@17"
	case h.has("apt-get") && oldApt[h.codename]:
		return sudo + "apt-get update && " + sudo + "apt-get install -y postgresql-common ca-certificates && " +
			sudo + "/usr/share/postgresql-common/pgdg/apt.postgresql.org.sh -y && " + sudo + "apt-get install -y postgresql-17"
	case h.has("apt-get"):
		return sudo + "apt-get update && " + sudo + "apt-get install -y postgresql"
	case h.has("dnf") && h.id != "fedora" && (strings.HasPrefix(h.version, "8") || strings.HasPrefix(h.version, "9")):
		return sudo + "dnf module enable -y postgresql:16 && " + sudo + "dnf install -y postgresql-server"
	case h.has("dnf"):
		return sudo + "dnf install -y postgresql-server"
	case h.has("apk"):
		return sudo + "apk add postgresql"
	case h.has("pacman"):
		return sudo + "pacman -S --noconfirm postgresql"
	case h.has("brew"):
		return "brew install postgresql@17"
	default:
		return "see https://www.postgresql.org/download/"
	}
}
