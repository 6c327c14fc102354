package breakage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"

	"github.com/onefold-dev/onefold/api"
)

// repeatable says of an effect's body whether it goes where a repeat is safe.
func repeatable(body []byte) bool { return bytes.Contains(body, []byte(`"to": "crm"`)) }

// pick gives the same number below n for the same text.
func pick(text string, n uint64) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64() % n
}

// name is the nth key with what it asks for: all that is random about a task
// follows from the number.
func name(n int) (kind, key string) {
	kinds := []string{"plain", "plain", "plain", "saved", "careful"}
	key = fmt.Sprintf("k-%d", n)
	return kinds[pick("kind"+key, uint64(len(kinds)))], key
}

// script is what the model does with a key. Every reply is stamped with its
// call, so that a result tells which call it came from.
func script(key string) string {
	switch p := pick("script"+key, 100); {
	case p < 47:
		return "fake:latency=30ms,stamp"
	case p < 57:
		return "fake:latency=400ms,stamp"
	case p < 70:
		return "fake:latency=2500ms,stamp" // long enough to be killed and stopped in
	case p < 80:
		return "fake:latency=5s,stamp" // and so that the next worker still runs it when the stopped one goes on
	case p < 84:
		return "fake:status=500,latency=100ms;stamp"
	case p < 88:
		return "fake:status=429,retry_after=1;latency=100ms,stamp"
	case p < 92:
		return "fake:cut=300,stamp;stamp"
	case p < 96:
		return "fake:status=400,latency=50ms"
	}
	return "fake:3*status=500;stamp" // fails, and is reopened
}

func submit(kind, key string, changed bool) api.Submit {
	text := "the work of " + key
	if changed {
		text += ", changed"
	}
	input, _ := json.Marshal(map[string]string{"model": script(key), "text": text})
	return api.Submit{Kind: kind, Input: input}
}
