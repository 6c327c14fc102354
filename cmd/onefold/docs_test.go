package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

const docHead = `# The command line

Made from ` + "`onefold --help`" + `; do not edit. Renew it with ` + "`go generate ./cmd/onefold`" + `.

| variable | meaning |
|---|---|
| ` + "`ONEFOLD_URL`" + ` | the server, ` + "`" + defaultURL + "`" + ` when not set |
| ` + "`ONEFOLD_API_KEY`" + ` | the API key; there is no flag for it, since other users of a machine can see arguments |
| ` + "`ONEFOLD_DATABASE_URL`" + `, ` + "`ONEFOLD_DATABASE_DIRECT_URL`" + ` | the database, for the commands that work on it directly; the second where the first leads through a pooler |
| ` + "`ONEFOLD_RUNTIME_PASSWORD`" + ` | the password that ` + "`onefold migrate --runtime-role`" + ` sets |
| ` + "`ONEFOLD_CONFIG`" + ` | the configuration file |
| ` + "`NO_COLOR`" + ` | no colours |

On a terminal the output has colours and relative times. In a pipe it has neither; ` + "`-o json`" + ` is for programs: one JSON document,
or one line of JSON a task where a command shows several. A document holds the result byte for byte; in a line, line breaks between
the tokens of a result become spaces. ` + "`onefold result ID`" + ` prints the bytes alone. With ` + "`-o json`" + ` an error is one line on stderr:
` + "`" + `{"error":{"code","message","fix","exit",...}}` + "`" + `; [errors.md](errors.md) lists the codes.

A key names an intent. After an error of any kind the same command can be run again: the same key meets the same task.
`

// TestCLIDoc keeps docs/cli.md to what --help says.
func TestCLIDoc(t *testing.T) {
	t.Parallel()
	path := filepath.Join("..", "..", "docs", "cli.md")
	want := cliDoc(t)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("docs/cli.md is stale; run: go generate ./cmd/onefold\n-got +want:\n%s", diff)
	}
}

func cliDoc(t *testing.T) string {
	t.Helper()
	var c cli
	parser, err := newParser(t.Context(), &env{stdout: io.Discard, stderr: io.Discard}, &c)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(docHead)
	fmt.Fprintf(&b, "\n```\n%s```\n", help(t, "--help"))
	for _, leaf := range parser.Model.Leaves(true) {
		path := strings.TrimPrefix(leaf.FullPath(), "onefold ")
		fmt.Fprintf(&b, "\n## onefold %s\n\n```\n%s```\n", path, help(t, append(strings.Fields(path), "--help")...))
	}
	return b.String()
}

func help(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(t.Context(), args, nil, &out, &errs, none); code != exitOK {
		t.Fatalf("%q: exit code %d: %s", args, code, errs.String())
	}
	lines := strings.Split(out.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
