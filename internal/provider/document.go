package provider

//go:generate go test . -run TestDocumentIsCurrent -update

import (
	"fmt"
	"strings"
)

// Document writes the failure table as Markdown; docs/failures.md is what it writes.
func Document() string {
	var b strings.Builder
	b.WriteString(documentHead)
	for _, s := range Sections() {
		fmt.Fprintf(&b, "\n## %s\n\n", s)
		if s == SectionCode {
			b.WriteString("Words are compared whole and without case; the text of a message is never looked at.\n\n")
		}
		b.WriteString("| observation | class | code | what is known | billed | attempt used | gate | what happens next |\n")
		b.WriteString("|---|---|---|---|---|---|---|---|\n")
		for i := range Table {
			if Table[i].Section == s {
				b.WriteString(Table[i].row())
			}
		}
	}
	return b.String()
}

func (r *Rule) row() string {
	on := r.On
	if len(r.Words) > 0 {
		on += ": `" + strings.Join(r.Words, "`, `") + "`"
	}
	used, gate := "no", "-"
	if r.Class.AttemptUsed() {
		used = "yes"
	}
	if r.Gate != GateNone {
		gate = string(r.Gate)
	}
	return fmt.Sprintf("| %s | %s | `%s` | %s | %s | %s | %s | %s |\n", on, r.Class, r.Code, r.Known, r.Billed, used, gate, r.Next)
}

const documentHead = `# Failures of a call

Made from the table in ` + "`internal/provider/table.go`" + `; do not edit. Renew it with ` +
	"`go generate ./internal/provider`" + `.

Every call to a provider that does not succeed is one row of this table. The class says what is known, and what is known
decides what may be done next:

| class | what is known | what may be done |
|---|---|---|
| ` + "`not_sent`" + ` | the provider cannot have got the whole request | send again; no attempt is used |
| ` + "`refused`" + ` | the provider turned the request away at the gate, for now | wait as asked, send again; no attempt is used |
| ` + "`rejected`" + ` | the provider will not take this request | nothing: failed |
| ` + "`unauthorized`" + ` | the credential is at fault, not the task | hold the provider; the task waits |
| ` + "`unknown`" + ` | the request was sent; whether it was carried out is not known | ` + "`on_unknown`" + ` or ` + "`on_cut`" + ` decides |
| ` + "`bad_output`" + ` | a reply came and cannot be used | retry within the attempts |

A timeout is not a failure: a provider that is not heard of may still work, finish and bill. *billed* says whether the
provider may charge for the call; once tokens came it is yes whatever the row says. Timeouts count from the real send;
a call that the provider streams counts as started with its first token, not with its headers.

What a provider says in structured form counts before its HTTP status, and inside a reply with status 200 a status that
stands as the code of an error counts as that status. *gate*: *cool* closes the provider until Retry-After or a backoff,
*hold* until an operator or a changed credential opens it.
`
