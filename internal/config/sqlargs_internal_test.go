package config

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSQLArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sql, text string
		args      string
	}{
		{"SELECT @key", "SELECT $1", "key"},
		{"  insert into t values (@key,@tenant, @task_id,@run,@kind,@outcome) ; -- done\n", "insert into t values ($1,$2, $3,$4,$5,$6)", "key tenant task_id run kind outcome"},
		{"SELECT @key, @input.a, @key", "SELECT $1, $2, $3", "key input.a key"},
		{"SELECT @input, @result, @input.a.b, @result.items.0.price, @error.code", "SELECT $1, $2, $3, $4, $5", "input result input.a.b result.items.0.price error.code"},
		{`SELECT @input."unit price".x, @result."a"`, "SELECT $1, $2", "input.unit price.x result.a"},
		{"SELECT @result.total::numeric, @input.n ::int", "SELECT $1::numeric, $2 ::int", "result.total input.n"},
		{"SELECT @result.total.", "SELECT $1.", "result.total"},
		// Quoted, commented and dollar-quoted text.
		{`SELECT '@key', "@key", 'it''s @key', E'\'@key', e'\\', @key`, `SELECT '@key', "@key", 'it''s @key', E'\'@key', e'\\', $1`, "key"},
		{`SELECT '\', @key`, `SELECT '\', $1`, "key"},
		{`SELECT U&'\0041@key', B'1', x'1F', n'@key', @key`, `SELECT U&'\0041@key', B'1', x'1F', n'@key', $1`, "key"},
		{"SELECT @key -- @input.a\n, @run", "SELECT $1  \n, $2", "key run"},
		{"SELECT /* @a /* @b */ @c */ @key", "SELECT   $1", "key"},
		{"/* hello */ SELECT @key", "SELECT $1", "key"},
		{"SELECT $$@key$$, $a$ @key $$ $a$, @key", "SELECT $$@key$$, $a$ @key $$ $a$, $1", "key"},
		{"SELECT a$b$c, @key, d$e$f", "SELECT a$b$c, $1, d$e$f", "key"},
		// Operators made with @.
		{"SELECT a @> @input.a AND b <@ @input.b AND c @@ @input.c", "SELECT a @> $1 AND b <@ $2 AND c @@ $3", "input.a input.b input.c"},
		{"SELECT a@>b, a<@b, a@@b, @ x, a@?b, a ^@ b, a^@b, p @-@ q", "SELECT a@>b, a<@b, a@@b, @ x, a@?b, a ^@ b, a^@b, p @-@ q", ""},
		{"SELECT a=@key, b<>@run,c>=@input.a,1+@input.b,d||@input.c", "SELECT a=$1, b<>$2,c>=$3,1+$4,d||$5", "key run input.a input.b input.c"},
		{"SELECT a->>'b', a#>>'{c}', a->'@key'", "SELECT a->>'b', a#>>'{c}', a->'@key'", ""},
		{"SELECT x FROM t WHERE j ? 'a' AND i = @key::text::jsonb", "SELECT x FROM t WHERE j ? 'a' AND i = $1::text::jsonb", "key"},
		{"SELECT a -@input.n", "SELECT a -$1", "input.n"},
		{"SELECT 1e5, 1.5, 0x1F, arr[1], @key", "SELECT 1e5, 1.5, 0x1F, arr[1], $1", "key"},
		{"SELECT 'ä@key', ä, @key", "SELECT 'ä@key', ä, $1", "key"},
		{"SELECT @keyä", "SELECT $1 ä", "key"},
		{"WITH x AS (DELETE FROM t RETURNING *) INSERT INTO u SELECT @key FROM x;", "WITH x AS (DELETE FROM t RETURNING *) INSERT INTO u SELECT $1 FROM x", "key"},
		{"MERGE INTO t USING s ON t.id=@key WHEN MATCHED THEN DELETE", "MERGE INTO t USING s ON t.id=$1 WHEN MATCHED THEN DELETE", "key"},
	} {
		st, err := parseSQL(c.sql)
		if err != nil {
			t.Errorf("%s: %v", c.sql, err)
			continue
		}
		if st.text != c.text {
			t.Errorf("%s:\ngot  %q\nwant %q", c.sql, st.text, c.text)
		}
		var args []string
		for _, a := range st.args {
			args = append(args, strings.Join(a, "."))
		}
		if got := strings.Join(args, " "); got != c.args {
			t.Errorf("%s: got args %q, want %q", c.sql, got, c.args)
		}
	}
}

func TestSQLProblems(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"":                              "empty",
		" -- nothing\n":                 "empty",
		";":                             "empty",
		"DROP TABLE t":                  "must begin with",
		"(1 SELECT)":                    "must begin with",
		"1 SELECT":                      "must begin with",
		"'x' SELECT":                    "must begin with",
		"@key":                          "must begin with",
		"BEGIN":                         "must begin with",
		"COPY t FROM STDIN":             "must begin with",
		"CALL f()":                      "must begin with",
		"INSERTED INTO t":               "must begin with",
		"SELECT 1; SELECT 2":            "second statement",
		"SELECT 1;;SELECT 2":            "second statement",
		"SELECT 1; DROP TABLE t":        "second statement",
		"SELECT 1; 'x'":                 "second statement",
		"SELECT 'open":                  "never closed",
		`SELECT E'open\'`:               "never closed",
		`SELECT "open`:                  "never closed",
		"SELECT $$open":                 "never closed",
		"SELECT $a$open$b$":             "never closed",
		"SELECT /* open":                "never closed",
		"SELECT /* /* */":               "never closed",
		"SELECT $1":                     "name the value instead",
		"SELECT $":                      "name the value instead",
		"SELECT @nothing":               "@nothing is no argument",
		"SELECT @keys":                  "@keys is no argument",
		"SELECT @key.a":                 "@key has no fields",
		"SELECT @error":                 "@error.code and @error.message",
		"SELECT @error.detail":          "@error.code and @error.message",
		"SELECT \x00":                   "NUL",
		"SELECT '\x00'":                 "NUL",
		"SELECT $$\x00$$":               "NUL",
		"SELECT 1 -- x\n; -- y\n; @key": "second statement",
	} {
		st, err := parseSQL(sql)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want %q", sql, st, err, want)
		}
	}
}

// TestSQLIsCopiedAroundArguments puts a statement together from pieces whose fate is known.
func TestSQLIsCopiedAroundArguments(t *testing.T) {
	t.Parallel()
	pieces := []string{"'@key'", `"@run"`, "$$ @key $$", "$x$ @key $x$", "E'\\' @key'", "a <@ b", "a @> b", "c", "1.5", "(", ")", ",", "=", "::text", "a$b"}
	names := []string{"key", "tenant", "input.a", "result.b.c", "result.items.0"}
	rapid.Check(t, func(t *rapid.T) {
		sql, want := "SELECT", "SELECT"
		var args []string
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			if !rapid.Bool().Draw(t, "arg") {
				p := rapid.SampledFrom(pieces).Draw(t, "piece")
				sql, want = sql+" "+p, want+" "+p
				continue
			}
			name := rapid.SampledFrom(names).Draw(t, "name")
			args = append(args, name)
			sql, want = sql+" @"+name, want+fmt.Sprintf(" $%d", len(args))
		}
		st, err := parseSQL(sql)
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		if diff := cmp.Diff(st.text, want); diff != "" {
			t.Fatalf("got -, want +:\n%s", diff)
		}
		if len(st.args) != len(args) {
			t.Fatalf("got %v, want %v", st.args, args)
		}
	})
}

// FuzzSQLArgs feeds arbitrary statements. One that is accepted has no argument left, numbers its parameters without a
// gap, and is refused when read again with parameters in it (they cannot be named twice).
func FuzzSQLArgs(f *testing.F) {
	for _, s := range []string{"SELECT @key", "SELECT '@key' -- @x\n, @input.a::int", "SELECT $a$ @key $a$, E'\\'', @result.\"x y\".0 <@ b;", "WITH x AS (SELECT /* /* */ */ 1) SELECT @run"} {
		f.Add(s)
	}
	param := regexp.MustCompile(`\$[0-9]+`)
	f.Fuzz(func(t *testing.T, sql string) {
		st, err := parseSQL(sql)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without words")
			}
			return
		}
		for i := range st.args {
			if !strings.Contains(st.text, fmt.Sprintf("$%d", i+1)) {
				t.Errorf("%q: no $%d in %q", sql, i+1, st.text)
			}
			if _, ok := sqlRoots[st.args[i][0]]; !ok {
				t.Errorf("%q: argument %v", sql, st.args[i])
			}
		}
		if again, err := parseSQL(st.text); len(st.args) > 0 && err == nil {
			t.Errorf("%q: %q was accepted again as %q", sql, st.text, again.text)
		} else if len(st.args) == 0 && err != nil && !param.MatchString(st.text) {
			t.Errorf("%q: %q is refused the second time: %v", sql, st.text, err)
		}
	})
}
