package canon_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/onefold-dev/onefold/internal/canon"
)

// chatOf returns a chat request of about n bytes: messages of a few hundred
// bytes with line breaks and some text outside ASCII, members unsorted, as
// clients write them.
func chatOf(n int) []byte {
	var b strings.Builder
	b.WriteString(`{"model":"gpt-4.1-mini","temperature":0.70,"max_tokens":1000,"messages":[`)
	const message = `{"role":"user","content":"Invoice No. %d\nTotal: 1.234,50 \u20ac due in 30 days.\n\n` +
		`\"Dear Sir or Madam\" — please find attached the invoice for the services rendered in August, including travel."}`
	for i := 0; ; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, message, i)
		if b.Len() >= n {
			break
		}
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

// documentOf returns a chat request with one message of about n bytes.
func documentOf(n int) []byte {
	line := `The quick brown fox jumps over the lazy dog and runs away.\n`
	return []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(line, n/len(line)) + `"}]}`)
}

// membersOf returns about n bytes of small members out of order, the worst
// shape for the index of members.
func membersOf(n int) []byte {
	var b strings.Builder
	b.WriteByte('{')
	count := n / 14
	for i := range count {
		fmt.Fprintf(&b, `"k%07d":1,`, i*7919%count)
	}
	b.WriteString(`"model":"m"}`)
	return []byte(b.String())
}

func BenchmarkCanonical(b *testing.B) {
	each(b, func(raw []byte) error { _, err := canon.Canonical(raw); return err })
}
func BenchmarkCheck(b *testing.B)     { each(b, canon.Check) }
func BenchmarkCheckChat(b *testing.B) { each(b, canon.CheckChat) }
func BenchmarkMembers(b *testing.B) {
	each(b, func(raw []byte) error { _, err := canon.Members(raw); return err })
}

func BenchmarkSum(b *testing.B) {
	each(b, func(raw []byte) error { _, err := canon.Sum("llm.chat", raw, nil); return err })
}

func BenchmarkFingerprint(b *testing.B) {
	each(b, func(raw []byte) error { _, err := canon.Fingerprint("llm.chat", raw, nil); return err })
}

// BenchmarkSubmit does what one submit does: splits the body, checks the input,
// hashes it.
func BenchmarkSubmit(b *testing.B) {
	each(b, func(raw []byte) error {
		members, err := canon.Members(raw)
		if err != nil {
			return err
		}
		if err := canon.CheckChat(raw); err != nil {
			return err
		}
		_, err = canon.Sum("llm.chat", raw, members[0].Value)
		return err
	})
}

func each(b *testing.B, work func([]byte) error) {
	shapes := []struct {
		name string
		make func(int) []byte
	}{{"chat", chatOf}, {"document", documentOf}, {"members", membersOf}}
	sizes := []struct {
		name string
		n    int
	}{{"1KiB", 1 << 10}, {"64KiB", 64 << 10}, {"8MiB", 8 << 20}}
	for _, shape := range shapes {
		for _, size := range sizes {
			b.Run(shape.name+"/"+size.name, func(b *testing.B) {
				raw := shape.make(size.n)
				b.SetBytes(int64(len(raw)))
				b.ReportAllocs()
				for b.Loop() {
					if err := work(raw); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
